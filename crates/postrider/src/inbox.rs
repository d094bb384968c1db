//! The consumer's side: an event that arrives twice changes something once.
//!
//! A consumer records each event's identity in the transaction of what the event changes there. Both
//! commit or neither does, so a repeat is known for what it is. `receive`, `receive_all` and
//! `receive_dead` have the same name and shape in each store's module.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::event::fit;

/// How long an inbox remembers an event, unless told otherwise.
pub const INBOX_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Characters of an identity, and of a consumer's name.
pub(crate) const IDENTITY_CHARS_MAX: usize = 100;

/// Lengths of what else an inbox holds.
mod lengths {
    pub(super) const SOURCE_CHARS_MAX: usize = 300;
    pub(super) const ERROR_CHARS_MAX: usize = 1_000;
}

/// The inbox of one consumer: a name that its processes share and no other consumer has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbox {
    consumer: String,
    retention: Duration,
}

impl Inbox {
    /// The inbox of this consumer.
    ///
    /// # Errors
    /// If the name is empty, longer than 100 characters, or has a NUL.
    pub fn new(consumer: impl Into<String>) -> Result<Self, InvalidMessage> {
        let consumer = consumer.into();
        check("the consumer's name", &consumer)?;
        Ok(Self { consumer, retention: INBOX_RETENTION })
    }

    /// How long identities are remembered: 30 days unless told otherwise. The Kafka consumer forgets
    /// its own after so long. Other clean-ups have a time of their own, and must not be given a shorter
    /// one. An event that is older when it arrives is warned about: whether it came before is unknown.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The name.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// The retention.
    pub fn remembers_for(&self) -> Duration {
        self.retention
    }
}

/// An event as a consumer meets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// Its identity: `postrider-event-id` in headers, `Idempotency-Key` by HTTP, `id` of a CloudEvent.
    pub event_id: String,
    /// When it was made, where the message says so.
    pub created_at: Option<DateTime<Utc>>,
}

impl Incoming {
    /// An event of which only the identity is known.
    pub fn new(event_id: impl Into<String>) -> Self {
        Self { event_id: event_id.into(), created_at: None }
    }

    /// States when it was made.
    #[must_use]
    pub fn created_at(mut self, created_at: DateTime<Utc>) -> Self {
        self.created_at = Some(created_at);
        self
    }
}

/// A message that the consumer gives up on, with what an operator needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadMessage<'a> {
    /// Its identity.
    pub event: &'a Incoming,
    /// Where it came from, such as `topic/partition@offset`. Cut to 300 characters.
    pub source: &'a str,
    /// The key of the message, where it has one.
    pub key: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a BTreeMap<String, String>,
    /// Its body.
    pub payload: &'a [u8],
    /// Why it cannot be handled. Cut to 1,000 characters.
    pub error: &'a str,
}

impl DeadMessage<'_> {
    pub(crate) fn source(&self) -> std::borrow::Cow<'_, str> {
        fit(self.source, lengths::SOURCE_CHARS_MAX)
    }

    pub(crate) fn error(&self) -> std::borrow::Cow<'_, str> {
        fit(self.error, lengths::ERROR_CHARS_MAX)
    }

    pub(crate) fn headers_json(&self) -> String {
        serde_json::json!(self.headers).to_string()
    }
}

/// An error message as the letters hold it.
#[cfg(feature = "kafka-consumer")]
pub(crate) fn fit_error(error: &str) -> std::borrow::Cow<'_, str> {
    fit(error, lengths::ERROR_CHARS_MAX)
}

/// What the inbox knows of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a duplicate must change nothing"]
pub enum Received {
    /// It is recorded now; handle it in the same transaction.
    New,
    /// It was received before. Do nothing; it is counted as ignored.
    Duplicate,
}

impl Received {
    /// Whether there is something to do.
    pub fn is_new(self) -> bool {
        self == Self::New
    }
}

/// Why a message cannot be recorded at all. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{found}` cannot be used: it must have 1 to 100 characters, and no NUL")]
pub struct InvalidMessage {
    /// What it is about.
    pub field: &'static str,
    /// The beginning of what was found.
    pub found: String,
}

/// Why `receive` failed.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The message itself is not acceptable; the transaction is untouched.
    #[error("invalid message: {0}")]
    Invalid(#[from] InvalidMessage),
    /// The database refused; roll back and repeat the transaction.
    #[error("the inbox could not be written: {0}")]
    Database(#[from] sqlx::Error),
}

fn check(field: &'static str, text: &str) -> Result<(), InvalidMessage> {
    let fits =
        !text.is_empty() && text.chars().count() <= IDENTITY_CHARS_MAX && !text.contains('\0');
    match fits {
        true => Ok(()),
        false => {
            let found = text.chars().filter(|c| !c.is_control()).take(40).collect();
            Err(InvalidMessage { field, found })
        }
    }
}

/// The identities of a batch: each once, sorted, so that two consumers with the same events wait for
/// each other instead of deadlocking.
pub(crate) fn identities(events: &[Incoming]) -> Result<Vec<&str>, InvalidMessage> {
    for event in events {
        check("the event's identity", &event.event_id)?;
    }
    let mut ids: Vec<&str> = events.iter().map(|event| event.event_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Answers for a batch in its order: of an identity that occurs twice, the first one is new.
pub(crate) fn answers(inbox: &Inbox, events: &[Incoming], fresh: Vec<String>) -> Vec<Received> {
    let mut fresh: HashSet<String> = fresh.into_iter().collect();
    let now = Utc::now();
    events
        .iter()
        .map(|event| match fresh.remove(&event.event_id) {
            true => {
                warn_if_forgotten(inbox, event, now);
                Received::New
            }
            false => Received::Duplicate,
        })
        .collect()
}

/// An event that was retried or replayed after the inbox has forgotten it looks new.
fn warn_if_forgotten(inbox: &Inbox, event: &Incoming, now: DateTime<Utc>) {
    let age = event.created_at.and_then(|created_at| (now - created_at).to_std().ok());
    if let Some(age) = age.filter(|age| *age > inbox.retention) {
        let days = |duration: Duration| duration.as_secs() / (24 * 3600);
        tracing::warn!(
            consumer = inbox.consumer,
            event_id = event.event_id,
            age_days = days(age),
            retention_days = days(inbox.retention),
            "this event is older than the inbox remembers: if it came before, it is handled again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_identities_that_no_column_holds_are_refused() {
        for wrong in ["", "a\0b", &"x".repeat(101)] {
            assert!(Inbox::new(wrong).is_err());
            assert!(identities(&[Incoming::new("ok"), Incoming::new(wrong)]).is_err());
        }
        assert!(Inbox::new("ü".repeat(100)).is_ok());
    }

    #[test]
    fn a_batch_is_answered_in_its_order_and_a_repeat_in_it_once() {
        let inbox = Inbox::new("fraud").unwrap();
        let events = ["b", "a", "b", "c"].map(Incoming::new);
        assert_eq!(identities(&events).unwrap(), ["a", "b", "c"]);
        let found = answers(&inbox, &events, vec!["b".to_owned(), "c".to_owned()]);
        use Received::{Duplicate, New};
        assert_eq!(found, [New, Duplicate, Duplicate, New]);
    }
}
