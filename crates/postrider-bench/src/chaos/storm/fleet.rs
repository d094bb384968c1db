//! The relays, processes that are killed and restarted, and their links to the database.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use postrider::Outbox;
use postrider_command::Failure;
use rand::RngExt;
use rand::rngs::StdRng;
use serde::Serialize;
use tokio::process::{Child, Command};

use super::link::{self, Link};
use super::lull::Lull;
use super::receiving::Receiving;
use crate::cli::StormArgs;

/// Time limit for relays to stop gracefully.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two disturbances of connections, in milliseconds.
const DISTURB_MS: std::ops::Range<u64> = 300..1_500;
/// Time for which connections stall, in milliseconds: sometimes longer than the lease.
const STALL_MS: std::ops::Range<u64> = 200..2_500;

/// The command that starts a relay.
pub(super) struct Spec {
    program: PathBuf,
    arguments: Vec<String>,
    connections_max: u32,
    log: Option<PathBuf>,
}

/// The relays of a run; dropping it kills them.
pub(super) struct Fleet {
    spec: Spec,
    /// The URL of each relay's store.
    urls: Vec<String>,
    relays: Vec<Child>,
    /// Relays that ended without being killed.
    pub(super) exits: u64,
}

impl Spec {
    pub(super) fn new(
        args: &StormArgs,
        connections_max: u32,
        outbox: &Outbox,
        backup_folder: &Path,
        receiving: &Receiving,
    ) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut arguments: Vec<String> = ["--log", "info", "chaos-relay", "--outbox"]
            .into_iter()
            .chain([outbox.name(), "--claim", args.claim.as_str(), "--backup-folder"])
            .map(str::to_owned)
            .collect();
        arguments.push(backup_folder.display().to_string());
        arguments.extend(receiving.relay_arguments());
        Ok(Self { program, arguments, connections_max, log: args.relay_log.clone() })
    }

    fn start(&self, url: &str) -> Result<Child, Failure> {
        let log = match &self.log {
            None => Stdio::null(),
            Some(file) => {
                let file = std::fs::File::options().create(true).append(true).open(file);
                file.map_err(|error| failed(&format!("--relay-log: {error}")))?.into()
            }
        };
        Command::new(&self.program)
            .args(&self.arguments)
            // Not as an argument: all users of the machine could read the password.
            .env("POSTRIDER_STORE__URL", url)
            .env("POSTRIDER_STORE__CONNECTIONS_MAX", self.connections_max.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))
    }
}

impl Fleet {
    pub(super) fn start(spec: Spec, urls: Vec<String>) -> Result<Self, Failure> {
        let relays = urls.iter().map(|url| spec.start(url)).collect::<Result<_, _>>()?;
        Ok(Self { spec, urls, relays, exits: 0 })
    }

    /// Kills one relay with SIGKILL and starts another in its place.
    pub(super) async fn kill(&mut self, place: usize) -> Result<(), Failure> {
        let relay = &mut self.relays[place];
        relay.start_kill().map_err(|error| failed(&error))?;
        relay.wait().await.map_err(|error| failed(&error))?;
        self.relays[place] = self.spec.start(&self.urls[place])?;
        Ok(())
    }

    /// Restarts relays that ended without being killed.
    pub(super) fn revive(&mut self) -> Result<(), Failure> {
        for place in 0..self.relays.len() {
            if self.relays[place].try_wait().map_err(|error| failed(&error))?.is_some() {
                self.exits += 1;
                self.relays[place] = self.spec.start(&self.urls[place])?;
            }
        }
        Ok(())
    }

    /// Stops all relays gracefully, by closing their input.
    pub(super) async fn stop(self) -> Result<(), Failure> {
        let mut relays = self.relays;
        for relay in &mut relays {
            drop(relay.stdin.take());
        }
        for mut relay in relays {
            let stopped = tokio::time::timeout(STOP_TIMEOUT, relay.wait()).await;
            stopped.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

fn failed(error: &impl std::fmt::Display) -> Failure {
    Failure::Partly(format!("a relay's process: {error}"))
}

/// Counts of the disturbances of connections.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Disturbances {
    pub(super) sessions_cut: u64,
    pub(super) stalls: u64,
}

/// The links of all relays to their database.
pub(super) struct Links {
    links: Vec<Link>,
    /// The reason why there are no links.
    pub(super) hindrance: Option<&'static str>,
    pub(super) done: Disturbances,
}

impl Links {
    pub(super) async fn open(url: &str, relays: u32) -> Result<Self, Failure> {
        let hindrance = link::hindrance(url);
        let mut links = Vec::new();
        for _ in 0..if hindrance.is_none() { relays } else { 0 } {
            links.push(Link::open(url).await?);
        }
        Ok(Self { links, hindrance, done: Disturbances::default() })
    }

    /// Returns the URL that each relay uses.
    pub(super) fn urls(&self, url: &str, relays: u32) -> Vec<String> {
        match self.hindrance {
            Some(_) => (0..relays).map(|_| url.to_owned()).collect(),
            None => self.links.iter().map(|link| link.url.clone()).collect(),
        }
    }

    /// Cuts connections and lets them stall, until it is dropped.
    pub(super) async fn disturb(&mut self, lull: &Lull, dice: &mut StdRng) {
        if self.links.is_empty() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(Duration::from_millis(dice.random_range(DISTURB_MS))).await;
            if lull.is_on() {
                continue;
            }
            let link = &self.links[dice.random_range(0..self.links.len())];
            match dice.random_range(0..4) {
                0 | 1 => self.done.sessions_cut += link.cut(false, dice),
                2 => self.done.sessions_cut += link.cut(true, dice),
                _ => {
                    self.done.stalls += 1;
                    link.stall(true);
                    let time = Duration::from_millis(dice.random_range(STALL_MS));
                    tokio::time::sleep(time).await;
                    link.stall(false);
                }
            }
        }
    }

    /// Ends all stalls.
    pub(super) fn calm(&self) {
        for link in &self.links {
            link.stall(false);
        }
    }
}
