//! The facts printed with every figure: where, on what and with which command it was measured.

use std::collections::BTreeMap;

use chrono::Utc;
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_command::without_password;
use postrider_store::Database;
use serde::Serialize;

use super::machine::Machine;
use super::numbers::{ratio, rounded};
use super::sinks::Sinks;
use super::stage::Stage;
use crate::cli::{EventArgs, RelayArgs};

/// Product, command, database and machine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Facts {
    pub(crate) bench: &'static str,
    pub(crate) postrider: &'static str,
    /// A debug build is several times slower.
    pub(crate) build: &'static str,
    pub(crate) command: String,
    pub(crate) measured_at: String,
    pub(crate) store: &'static str,
    pub(crate) server: String,
    /// The settings that decide whether a commit survives a crash, as the server reports them.
    pub(crate) durability: BTreeMap<String, String>,
    pub(crate) machine: Machine,
}

impl Facts {
    pub(super) async fn gather(bench: &'static str, stage: &Stage) -> Result<Self, Failure> {
        Self::of(bench, stage.store.as_ref()).await
    }

    pub(crate) async fn of(bench: &'static str, store: &dyn Database) -> Result<Self, Failure> {
        let server = store.server_facts().await?;
        Ok(Self {
            bench,
            postrider: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            command: command_line(std::env::args()),
            measured_at: Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            store: store.kind().as_str(),
            server: server.version,
            durability: server.durability,
            machine: Machine::look(),
        })
    }
}

/// Returns the command as it was given, without the path of the program and without passwords.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let hidden = |argument: String| match argument.split_once('=') {
        Some((option, url)) if option.starts_with("--") && url.contains("://") => {
            format!("{option}={}", without_password(url))
        }
        _ if argument.contains("://") => without_password(&argument),
        _ => argument,
    };
    let given = arguments.skip(1).map(hidden);
    std::iter::once("postrider".to_owned()).chain(given).collect::<Vec<_>>().join(" ")
}

/// The settings that benches with relays share.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Settings {
    pub(super) claim: &'static str,
    pub(super) relays: u32,
    pub(super) batch: u32,
    pub(super) payload_bytes: u32,
    pub(super) keys: u64,
    pub(super) on_success: &'static str,
    pub(super) content_hash_verified: bool,
}

impl Settings {
    pub(super) fn new(relay: &RelayArgs, event: &EventArgs, relays: u32) -> Self {
        Self {
            claim: relay.claim.as_str(),
            relays,
            batch: relay.batch,
            payload_bytes: event.payload,
            keys: event.keys,
            on_success: "delete",
            content_hash_verified: true,
        }
    }

    pub(super) fn figures(&self, sinks: &Sinks, events: u64) -> Vec<(String, String)> {
        let sink = sinks.facts();
        let target = sink.target.map_or(String::new(), |target| format!(" ({target})"));
        let count = |value: u64| number(i128::from(value));
        vec![
            (
                "events".to_owned(),
                format!(
                    "{} of {} B, {} keys, hash verified",
                    count(events),
                    count(self.payload_bytes.into()),
                    count(self.keys)
                ),
            ),
            (
                "relays".to_owned(),
                format!("{}, claim {}, batch {}", self.relays, self.claim, self.batch),
            ),
            ("sink".to_owned(), format!("{}{target}", sink.sink)),
        ]
    }
}

/// The speed, compared with the limit of the same run.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Speed {
    pub(super) events: u64,
    pub(super) seconds: f64,
    pub(super) events_per_s: f64,
    pub(super) limit_events_per_s: f64,
    pub(super) ratio: f64,
}

impl Speed {
    pub(super) fn new(events: u64, seconds: f64, limit_events_per_s: f64) -> Self {
        let events_per_s = ratio(events as f64, seconds);
        Self {
            events,
            seconds: rounded(seconds, 3),
            events_per_s: rounded(events_per_s, 1),
            limit_events_per_s: rounded(limit_events_per_s, 1),
            ratio: rounded(ratio(events_per_s, limit_events_per_s), 4),
        }
    }
}

/// Whether the results were also correct, and how much memory the run took.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Soundness {
    pub(super) rss_max_mb: f64,
    /// Memory of relays that have not worked yet.
    pub(super) rss_idle_mb: f64,
    pub(super) duplicates: u64,
    /// Events that arrived after a later one of their key.
    pub(super) order_violations: u64,
    pub(super) balanced: bool,
}

impl Soundness {
    pub(super) fn new(
        (rss_max_bytes, rss_idle_bytes): (u64, u64),
        (duplicates, order_violations): (u64, u64),
        balanced: bool,
    ) -> Self {
        let mb = |bytes: u64| rounded(bytes as f64 / 1e6, 1);
        Self {
            rss_max_mb: mb(rss_max_bytes),
            rss_idle_mb: mb(rss_idle_bytes),
            duplicates,
            order_violations,
            balanced,
        }
    }

    /// Returns why the run failed, however fast it was. Claim mode `rows` promises no order.
    pub(super) fn failure(&self, claim: &str) -> Option<Failure> {
        if !self.balanced {
            return Some(Failure::Unbalanced("after the bench".to_owned()));
        }
        if self.duplicates > 0 {
            let why = format!("{} events were delivered more than once", self.duplicates);
            return Some(Failure::Partly(why));
        }
        (claim != "rows" && self.order_violations > 0)
            .then(|| Failure::Partly(format!("{} events came out of order", self.order_violations)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_knows_its_limit() {
        let speed = Speed::new(1_000, 0.5, 4_000.0);
        assert_eq!((speed.events_per_s, speed.ratio), (2_000.0, 0.5));
        assert_eq!(Speed::new(0, 0.0, 0.0).ratio, 0.0);
    }

    #[test]
    fn the_command_is_printed_without_its_password() {
        let given =
            ["/opt/bin/postrider", "--store", "postgres://me:secret@db/app", "bench", "drain"];
        let line = command_line(given.map(str::to_owned).into_iter());
        assert!(!line.contains("secret") && !line.contains("/opt"), "{line}");
        assert!(line.starts_with("postrider --store postgres://me"), "{line}");
        let joined =
            command_line(["p", "--store=mysql://me:secret@db/app"].map(str::to_owned).into_iter());
        assert!(joined.contains("--store=mysql://me") && !joined.contains("secret"), "{joined}");
    }

    #[test]
    fn a_fast_run_that_is_wrong_is_a_failure() {
        let sound = Soundness::new((1, 1), (0, 5), true);
        assert!(sound.failure("rows").is_none(), "rows promises no order");
        assert!(sound.failure("lanes").is_some());
        assert!(Soundness { duplicates: 1, ..sound }.failure("rows").is_some());
        let failure = Soundness { balanced: false, ..sound }.failure("rows");
        assert_eq!(failure.map(|failure| failure.exit_code()), Some(3));
    }
}
