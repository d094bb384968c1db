//! A database server or broker that a test may kill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{TempFolder, TestServer, skip};

/// A server for one test, started by `dev/services instance`; killed when dropped.
#[derive(Debug)]
pub struct PrivateServer {
    name: &'static str,
    folder: TempFolder,
    /// Its URL, which is the same after a restart.
    pub url: String,
}

impl PrivateServer {
    /// Starts a server. `None`, noted as skipped, if there are no servers at all.
    pub async fn start(server: impl Into<TestServer>, test: &str) -> Option<Self> {
        let server = server.into();
        Self::of(server.service(), server.variable().unwrap_or_default(), test).await
    }

    /// Starts a server of a service of `dev/services`, whose shared server `variable` names.
    pub async fn of(name: &'static str, variable: &str, test: &str) -> Option<Self> {
        // If there is no shared server, the test does not install a private one either.
        if std::env::var_os(variable).is_none() {
            skip(test, &format!("the variable {variable} is not set"));
            return None;
        }
        let mut server = Self { name, folder: TempFolder::new(), url: String::new() };
        server.url = server.control("start").await;
        Some(server)
    }

    /// Returns the folder of its files. Servers that run as another user may keep them elsewhere.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    /// Stops it normally.
    pub async fn stop(&self) {
        self.control("stop").await;
    }

    /// Kills all of its processes, like a crash.
    pub async fn kill(&self) {
        self.control("kill").await;
    }

    /// Starts it again, on the same port and data, and waits until it replies.
    pub async fn restart(&self) {
        assert_eq!(self.control("start").await, self.url);
    }

    /// Suspends its processes: connections are accepted, but nothing is answered.
    pub async fn freeze(&self) {
        self.control("freeze").await;
    }

    /// Resumes its processes.
    pub async fn thaw(&self) {
        self.control("thaw").await;
    }

    /// Applies `stop`, `kill`, `freeze` or `thaw` to one process of several, such as `node-2`.
    pub async fn to_process(&self, process: &'static str, verb: &'static str) {
        self.run(&[verb, process]).await;
    }

    async fn control(&self, verb: &'static str) -> String {
        self.run(&[verb]).await
    }

    async fn run(&self, words: &[&'static str]) -> String {
        let (name, folder, words) = (self.name, self.folder.path().to_owned(), words.to_vec());
        let ran = tokio::task::spawn_blocking(move || {
            services(name, &folder, &words)
                .unwrap_or_else(|error| panic!("dev/services instance {name} {words:?}: {error}"))
        });
        ran.await.unwrap()
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        // The folder is removed with the server, so its data is not needed any more.
        if let Err(error) = services(self.name, self.folder.path(), &["kill"]) {
            eprintln!("the private {} is left running: {error}", self.name);
        }
    }
}

fn services(name: &str, folder: &Path, words: &[&str]) -> Result<String, String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../dev/services");
    let output = Command::new(script)
        .args(["instance", name])
        .arg(folder)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
