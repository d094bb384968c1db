//! The `postrider` binary in an operator's environment: a configuration file in a folder, commands,
//! and daemons.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::http_client::{self, Response};
use crate::metrics::Metrics;
use crate::{PATIENCE, TempFolder, eventually};

/// Environment variables that would affect a test from outside.
const FOREIGN: [&str; 3] = ["POSTRIDER_CONFIG", "POSTRIDER_LOG", "POSTRIDER_STORE__URL"];
/// The user of the operating system, as the binary sees it.
pub const OPERATOR: &str = "tess";

/// A binary, and a folder with its configuration file.
#[derive(Debug)]
pub struct Installation {
    binary: PathBuf,
    folder: Arc<TempFolder>,
}

impl Installation {
    /// Writes `config` as `postrider.toml` into a new folder. With `listen = "127.0.0.1:0"` a
    /// daemon finds a free port, and the test finds the daemon.
    pub fn new(binary: impl Into<PathBuf>, config: &str) -> Self {
        let made = Self { binary: binary.into(), folder: Arc::new(TempFolder::new()) };
        made.configure(config);
        made
    }

    /// Returns the same folder and configuration, used by another program.
    #[must_use]
    pub fn with_binary(&self, binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), folder: Arc::clone(&self.folder) }
    }

    /// Writes another configuration.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("postrider.toml"), config).unwrap();
    }

    /// Returns the folder in which the binary runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command until it ends.
    pub async fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[], "").await
    }

    /// Runs a command with environment variables and standard input.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub async fn run_with(&self, args: &[&str], variables: &[(&str, &str)], input: &str) -> Ran {
        let mut command = self.command(args);
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // A command that does not read its input closes the pipe.
        tokio::spawn(async move { drop(stdin.write_all(input.as_bytes()).await) });
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("{args:?} does not end")).unwrap();
        Ran {
            what: format!("postrider {}", args.join(" ")),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts a command that the test interrupts; it is killed when dropped.
    pub fn begin(&self, args: &[&str]) -> Begun {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Begun { what: format!("postrider {}", args.join(" ")), child: command.spawn().unwrap() }
    }

    /// Starts `postrider run` and waits until it is ready.
    pub async fn start(&self) -> Daemon {
        let daemon = self.launch(&[], &[]).await;
        daemon.ready().await;
        daemon
    }

    /// Starts `postrider run` and waits until it listens.
    ///
    /// # Panics
    /// If it ends before that, with its log.
    pub async fn launch(&self, args: &[&str], variables: &[(&str, &str)]) -> Daemon {
        self.serve(&[&["run"][..], args].concat(), variables).await
    }

    /// Starts a program that logs `serving http://…` and waits until it listens.
    ///
    /// # Panics
    /// If it ends before that, with its log.
    pub async fn serve(&self, args: &[&str], variables: &[(&str, &str)]) -> Daemon {
        let mut command = self.command(args);
        command.envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        let address = eventually("the daemon listens", async || {
            let text = log.text();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{text}");
            }
            let (_, rest) = text.split_once("serving http://")?;
            rest.split_whitespace().next()?.parse().ok()
        });
        let address = address.await;
        Daemon { child, address, log }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).current_dir(self.folder()).env("USER", OPERATOR);
        command.stderr(Stdio::piped()).kill_on_drop(true);
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        command
    }
}

/// A running command.
#[derive(Debug)]
pub struct Begun {
    what: String,
    child: tokio::process::Child,
}

impl Begun {
    /// Sends Ctrl-C (`INT`) or a kill (`KILL`), and waits until it ends.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub async fn signalled(self, signal: &str) -> Ran {
        let pid = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().await.unwrap();
        assert!(sent.success(), "SIG{signal} could not be sent");
        let output = tokio::time::timeout(PATIENCE, self.child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("{} does not end", self.what)).unwrap();
        Ran {
            what: self.what,
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    what: String,
    /// Exit code; `None` if it was killed.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Fails unless it ended with this code.
    #[must_use]
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}\n{}", self.what, self.stdout, self.stderr);
        self
    }

    /// Fails unless standard error contains each of these words.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            let said = self.stderr.contains(word);
            assert!(said, "{}: `{word}` is not in:\n{}", self.what, self.stderr);
        }
        self
    }

    /// Fails unless standard output contains each of these words.
    #[track_caller]
    pub fn shows(self, words: &[&str]) -> Self {
        for word in words {
            let shown = self.stdout.contains(word);
            assert!(shown, "{}: `{word}` is not in:\n{}", self.what, self.stdout);
        }
        self
    }

    /// Parses standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{}: {error}\n{}\n{}", self.what, self.stdout, self.stderr)
        })
    }
}

/// The standard error of a daemon.
#[derive(Debug)]
struct Log {
    text: Arc<Mutex<String>>,
    /// Ends with the last line.
    reading: tokio::task::JoinHandle<()>,
}

impl Log {
    fn follow(stderr: tokio::process::ChildStderr) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let all = Arc::clone(&text);
        let reading = tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut text = text.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self { text: all, reading }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }
}

/// A running `postrider run`; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    address: SocketAddr,
    log: Log,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the daemon at {}:\n{}", self.address, self.log());
        }
    }
}

impl Daemon {
    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until it reports that it is ready.
    pub async fn ready(&self) {
        eventually("the daemon is ready", async || {
            self.get("/readyz").await.ok().filter(|answer| answer.status == 200)
        })
        .await;
    }

    /// Gets a path.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn get(&self, path: &str) -> Result<Response, String> {
        http_client::send(self.address, "GET", path, &[], "").await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &str) -> Response {
        let headers = [("content-type", "application/json")];
        http_client::send(self.address, "POST", path, &headers, body.to_owned()).await.unwrap()
    }

    /// Scrapes `/metrics`.
    pub async fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").await.unwrap().body)
    }

    /// Waits until a metric has exactly this value. A relay counts only after it received the
    /// answer to the commit, whose effect others may see earlier.
    pub async fn shows(&self, metric: &str, labels: &[(&str, &str)], value: f64) {
        eventually(&format!("{metric}{labels:?} is {value}"), async || {
            (self.metrics().await.sum(metric, labels) == value).then_some(())
        })
        .await;
    }

    /// Waits until a metric, summed over all labels, is at least this value.
    pub async fn reaches(&self, metric: &str, value: f64) {
        eventually(&format!("{metric} reaches {value}"), async || {
            (self.metrics().await.sum(metric, &[]) >= value).then_some(())
        })
        .await;
    }

    /// Waits until the log contains a text.
    pub async fn logs(&self, text: &str) {
        eventually(&format!("the daemon logs `{text}`"), async || {
            self.log().contains(text).then_some(())
        })
        .await;
    }

    /// Returns its process id.
    ///
    /// # Panics
    /// If it has ended.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("the daemon runs")
    }

    /// Returns whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it with SIGKILL; returns its log.
    pub async fn kill(mut self) -> String {
        self.child.kill().await.unwrap();
        self.log()
    }

    /// Sends SIGTERM.
    pub async fn terminate(&self) {
        let pid = self.pid().to_string();
        // The workspace forbids unsafe code, and so the system call.
        let sent = Command::new("kill").args(["-TERM", &pid]).status().await.unwrap();
        assert!(sent.success(), "SIGTERM could not be sent");
    }

    /// Waits until it ends by itself; returns its exit code.
    ///
    /// # Panics
    /// If that takes longer.
    pub async fn exit_within(&mut self, limit: Duration) -> Option<i32> {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("runs after {limit:?}:\n{}", self.log()));
        // Its last output may still be in the pipe.
        if !self.log.reading.is_finished() {
            drop(tokio::time::timeout(PATIENCE, &mut self.log.reading).await);
        }
        status.unwrap().code()
    }

    /// Stops it with SIGTERM.
    ///
    /// # Panics
    /// Unless it ends normally.
    pub async fn stop(mut self) -> String {
        self.terminate().await;
        let code = self.exit_within(PATIENCE).await;
        assert_eq!(code, Some(0), "{}", self.log());
        self.log()
    }
}
