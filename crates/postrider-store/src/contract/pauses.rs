//! Pauses: rows in the store. Every relay reads them at each heartbeat, and they survive restarts.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Result;

/// The kinds of things that can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// One outbox: its events are not claimed and no delivery starts.
    Outbox,
    /// One sink: every outbox that delivers to it.
    Sink,
}

impl PauseKind {
    /// Returns the spelling in the tables and in audited actions (`outbox.pause`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Sink => "sink",
        }
    }

    /// Returns the outbox of the audit trail's line about a pause.
    pub(crate) fn outbox(self, name: &str) -> &str {
        match self {
            Self::Outbox => name,
            Self::Sink => "",
        }
    }
}

impl std::str::FromStr for PauseKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Outbox, Self::Sink]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("unknown kind `{text}`; allowed: outbox, sink"))
    }
}

/// A pause of an outbox or sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Kind of the paused thing.
    pub kind: PauseKind,
    /// Name of the outbox or sink.
    pub name: String,
    /// Name of the operator who paused it.
    pub operator: String,
    /// Reason given by the operator.
    pub note: String,
    /// When it was paused.
    pub paused_at: DateTime<Utc>,
}

/// Pausing and resuming. Relays read the pauses at each heartbeat: while one is in effect, no event
/// is claimed and no delivery starts; deliveries in flight are completed.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// Returns all pauses, by kind and name.
    async fn pauses(&self) -> Result<Vec<Pause>>;

    /// Pauses an outbox or sink. Returns `false`, and changes nothing, if it is paused already.
    async fn pause(&self, kind: PauseKind, name: &str, operator: &str, note: &str) -> Result<bool>;

    /// Resumes an outbox or sink. Returns `false` if it is not paused.
    async fn resume(&self, kind: PauseKind, name: &str, operator: &str, note: &str)
    -> Result<bool>;
}
