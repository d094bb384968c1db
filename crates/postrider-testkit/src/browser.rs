//! A real browser: headless Chromium, operated like by a user, with access to its requests and log.

use std::path::Path;
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thirtyfour::{
    By, ChromiumLikeCapabilities, DesiredCapabilities, LoggingPrefsLogLevel, WebDriver, WebElement,
};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{TempFolder, eventually, skip};

/// Considers only elements that a user can see.
const SHOWN: &str = "
    const shown = (element) => element.checkVisibility({ visibilityProperty: true });
    const words = (element) => element.innerText.replace(/\\s+/g, ' ').trim();
";

/// A browser for one test. Its two processes end when it is dropped.
pub struct Browser {
    driver: WebDriver,
    _process: Child,
    _said: Lines<BufReader<ChildStdout>>,
    _folder: TempFolder,
    axe: String,
}

impl Browser {
    /// Opens a browser. `None`, noted as skipped, if Chromium, its driver or axe-core is missing.
    pub async fn open(test: &str) -> Option<Self> {
        let variable = |name: &str| match std::env::var(name) {
            Ok(value) => Some(value),
            Err(_) => {
                skip(test, &format!("{name} is not set; dev/test provides it"));
                None
            }
        };
        let (program, chromium) = (variable("CHROMEDRIVER")?, variable("CHROMIUM")?);
        let axe = std::fs::read_to_string(variable("AXE")?).unwrap();
        let mut command = Command::new(program);
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = loop {
            let line = said.next_line().await.unwrap().expect("the driver ended");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        let folder = TempFolder::new();
        let mut wanted = DesiredCapabilities::chrome();
        wanted.set_binary(&chromium).unwrap();
        let profile = format!("--user-data-dir={}", folder.path().display());
        for argument in [
            "--headless=new",
            // Tests run as root in containers, where Chromium's sandbox does not work.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en-GB",
            &profile,
        ] {
            wanted.add_arg(argument).unwrap();
        }
        for log in ["browser", "performance"] {
            wanted.set_logging_prefs(log.to_owned(), LoggingPrefsLogLevel::All).unwrap();
        }
        // The driver's client supports TLS and needs a crypto provider.
        drop(rustls::crypto::ring::default_provider().install_default());
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), wanted).await.unwrap();
        let browser = Self { driver, _process: process, _said: said, _folder: folder, axe };
        browser.screen(1280, 900, false).await;
        Some(browser)
    }

    /// Goes to an address and waits until the document has loaded.
    pub async fn go(&self, url: &str) {
        self.driver.goto(url).await.unwrap();
    }

    /// Sets the size of the window, and whether the user prefers a dark colour scheme.
    pub async fn screen(&self, width: u32, height: u32, dark: bool) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// Sends a command of the browser's own protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.driver.cdp().send_raw(command, parameters).await.unwrap()
    }

    /// Runs a script and returns its result.
    pub async fn script(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.driver.execute(script.to_owned(), arguments).await.unwrap().json().clone()
    }

    /// Runs a script that returns its result later, by calling its last argument.
    pub async fn later(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.driver.execute_async(script.to_owned(), arguments).await.unwrap().json().clone()
    }

    /// Returns all visible words.
    pub async fn words(&self) -> String {
        self.words_of("body").await
    }

    /// Returns the words of the first matching element; empty if there is none.
    pub async fn words_of(&self, css: &str) -> String {
        let script = format!(
            "{SHOWN} const found = document.querySelector(arguments[0]); \
             return found ? words(found) : '';"
        );
        let found = self.script(&script, vec![css.into()]).await;
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Returns the words of all visible matching elements.
    pub async fn all_words(&self, css: &str) -> Vec<String> {
        let script = format!(
            "{SHOWN} return [...document.querySelectorAll(arguments[0])].filter(shown).map(words);"
        );
        let found = self.script(&script, vec![css.into()]).await;
        let list = found.as_array().cloned().unwrap_or_default();
        list.iter().filter_map(|words| words.as_str().map(str::to_owned)).collect()
    }

    /// Waits until the first matching element contains these words.
    ///
    /// # Panics
    /// If it does not, with what the page shows instead.
    pub async fn says(&self, css: &str, words: &str) {
        let started = std::time::Instant::now();
        while !self.words_of(css).await.contains(words) {
            assert!(
                started.elapsed() < crate::PATIENCE,
                "`{css}` does not say `{words}`; the page says: {}\nand the console: {:?}",
                self.words().await,
                self.console().await
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits for a matching element, and clicks it.
    pub async fn click(&self, css: &str) {
        let element = self.element(By::Css(css.to_owned()), css).await;
        element.click().await.unwrap();
    }

    /// Clicks the button or link with these words, within the first matching element.
    pub async fn press(&self, within: &str, words: &str) {
        let script = format!(
            "{SHOWN} const place = document.querySelector(arguments[0]); \
             const all = place ? [...place.querySelectorAll('button, a')] : []; \
             const found = all.find((one) => shown(one) && words(one) === arguments[1]); \
             if (!found || found.disabled) return false; \
             found.scrollIntoView({{ block: 'center' }}); found.focus(); found.click(); return \
             true;"
        );
        let what = format!("there is `{words}` in `{within}`");
        let arguments = || vec![within.into(), words.into()];
        eventually(&what, async || {
            self.script(&script, arguments()).await.as_bool().filter(|done| *done)
        })
        .await;
    }

    /// Types text into a field.
    pub async fn fill(&self, css: &str, text: &str) {
        let element = self.element(By::Css(css.to_owned()), css).await;
        element.clear().await.unwrap();
        element.send_keys(text).await.unwrap();
    }

    /// Presses keys, wherever the focus is.
    pub async fn keys(&self, keys: &str) {
        let focused = self.driver.active_element().await.unwrap();
        focused.send_keys(keys).await.unwrap();
    }

    async fn element(&self, by: By, what: &str) -> WebElement {
        let what = format!("there is `{what}`");
        eventually(&what, async || {
            let found = self.driver.find(by.clone()).await.ok()?;
            found.is_clickable().await.ok()?.then_some(found)
        })
        .await
    }

    /// Saves a picture of the window, or of the whole page, to a file.
    pub async fn picture(&self, file: &Path, whole_page: bool) {
        let mut wanted = json!({ "format": "png", "captureBeyondViewport": whole_page });
        if whole_page {
            let script = "return [innerWidth, document.documentElement.scrollHeight];";
            let size = self.script(script, Vec::new()).await;
            wanted["clip"] =
                json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        }
        let picture = self.devtools("Page.captureScreenshot", wanted).await;
        let bytes = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// Returns the accessibility problems that axe-core finds on the page, one line each.
    pub async fn accessibility_faults(&self) -> Vec<String> {
        let script = format!(
            "if (!window.axe) {{ {} }} const done = arguments[0]; \
             axe.run(document, {{ resultTypes: ['violations'] }}).then((found) => done( \
                 found.violations.map((v) => `${{v.id}}: ${{v.help}}: ` + \
                     v.nodes.map((n) => n.target.join(' ') + ' ' + (n.any[0]?.message ?? \
                 '')).join(' | '))), (error) => done([String(error)]));",
            self.axe
        );
        let found = self.later(&script, Vec::new()).await;
        let list = found.as_array().cloned().unwrap_or_default();
        list.iter().map(|line| line.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Returns errors and warnings since the last call.
    pub async fn console(&self) -> Vec<String> {
        let lines = self.driver.browser_log().await.unwrap();
        let bad = |level: &str| level == "SEVERE" || level == "WARNING";
        lines.into_iter().filter(|line| bad(&line.level)).map(|line| line.message).collect()
    }

    /// Returns the addresses that the browser requested since the last call, except those inside
    /// the page.
    pub async fn requests(&self) -> Vec<String> {
        let lines = self.driver.get_log("performance").await.unwrap();
        let messages = lines.iter().filter_map(|line| serde_json::from_str(&line.message).ok());
        let address = |line: Value| {
            let sent = line["message"]["method"] == "Network.requestWillBeSent";
            let url = line["message"]["params"]["request"]["url"].as_str()?.to_owned();
            // Skips addresses inside the page itself or the browser.
            (sent && url.starts_with("http")).then_some(url)
        };
        messages.filter_map(address).collect()
    }

    /// Closes the browser normally.
    pub async fn close(self) {
        self.driver.quit().await.unwrap();
    }
}
