//! Pauses: rows in the store that reach every relay with its next heartbeat and outlive restarts.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Result;

/// What can be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseKind {
    /// One outbox: nothing of it is claimed or begun.
    Outbox,
    /// One sink: every outbox that leads to it.
    Sink,
}

impl PauseKind {
    /// The spelling in the tables and in audited actions (`outbox.pause`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Sink => "sink",
        }
    }

    /// What a line of the audit trail about it has as its outbox.
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

/// Something that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// What it is.
    pub kind: PauseKind,
    /// Name of the outbox or sink.
    pub name: String,
    /// Who paused it.
    pub operator: String,
    /// Why.
    pub note: String,
    /// Since when.
    pub paused_at: DateTime<Utc>,
}

/// Pausing and resuming. Relays read the rows at each heartbeat: nothing new is claimed or begun
/// while a pause holds, and what is in flight is finished.
#[async_trait]
pub trait Pauses: Send + Sync {
    /// All pauses, by kind and name.
    async fn pauses(&self) -> Result<Vec<Pause>>;

    /// Pauses. Answers `false`, and changes nothing, where it is paused already.
    async fn pause(&self, kind: PauseKind, name: &str, operator: &str, note: &str) -> Result<bool>;

    /// Resumes. Answers `false` where it is not paused.
    async fn resume(&self, kind: PauseKind, name: &str, operator: &str, note: &str)
    -> Result<bool>;
}
