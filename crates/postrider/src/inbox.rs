//! Inboxes: consumers process an event once, even if it arrives twice.
//!
//! A consumer records each event's identity in the same transaction as its changes. Both commit or
//! neither does, so a repeat is recognized. `receive`, `receive_all` and `receive_dead` have the
//! same name and shape in each store's module.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::event::fit;

/// Default time for which an inbox remembers an event.
pub const INBOX_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// Maximum number of characters in an event's identity and in a consumer's name.
pub const IDENTITY_CHARS_MAX: usize = 100;

/// Length limits of other fields of an inbox.
mod lengths {
    pub(super) const SOURCE_CHARS_MAX: usize = 300;
    pub(super) const ERROR_CHARS_MAX: usize = 1_000;
}

/// The inbox of one consumer. The consumer's processes share the name; no other consumer has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbox {
    consumer: String,
    retention: Duration,
}

impl Inbox {
    /// Creates the inbox of this consumer.
    ///
    /// # Errors
    /// If the name is empty, longer than 100 characters, or contains a NUL.
    pub fn new(consumer: impl Into<String>) -> Result<Self, InvalidMessage> {
        let consumer = consumer.into();
        check("the consumer's name", &consumer)?;
        Ok(Self { consumer, retention: INBOX_RETENTION })
    }

    /// Sets how long identities are remembered; the default is 30 days. The Kafka consumer deletes
    /// its own identities after this time. Other clean-ups have their own setting, which must not
    /// be shorter. An event that arrives later than this logs a warning, because the inbox can no
    /// longer tell whether it came before.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Returns the consumer's name.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// Returns how long identities are remembered.
    pub fn remembers_for(&self) -> Duration {
        self.retention
    }
}

/// An event that a consumer receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// Identity of the event: `postrider-event-id` in headers, `Idempotency-Key` in HTTP, `id` of a
    /// CloudEvent.
    pub event_id: String,
    /// When the event was created, if the message says so.
    pub created_at: Option<DateTime<Utc>>,
}

impl Incoming {
    /// Creates an event of which only the identity is known.
    pub fn new(event_id: impl Into<String>) -> Self {
        Self { event_id: event_id.into(), created_at: None }
    }

    /// Sets when the event was created.
    #[must_use]
    pub fn created_at(mut self, created_at: DateTime<Utc>) -> Self {
        self.created_at = Some(created_at);
        self
    }
}

/// A message that the consumer gives up on, with the data that an operator needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadMessage<'a> {
    /// Identity of the message.
    pub event: &'a Incoming,
    /// Origin of the message, such as `topic/partition@offset`. Cut to 300 characters.
    pub source: &'a str,
    /// Key of the message, if it has one.
    pub key: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a BTreeMap<String, String>,
    /// Its body.
    pub payload: &'a [u8],
    /// Reason why the message cannot be processed. Cut to 1,000 characters.
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

/// Cuts an error message to the length that the dead letters hold.
pub fn fit_error(error: &str) -> std::borrow::Cow<'_, str> {
    fit(error, lengths::ERROR_CHARS_MAX)
}

/// Whether the inbox knows an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a duplicate must change nothing"]
pub enum Received {
    /// It is recorded now; process it in the same transaction.
    New,
    /// It was received before. Do nothing; it is counted as ignored.
    Duplicate,
}

impl Received {
    /// Returns whether the event is to be processed.
    pub fn is_new(self) -> bool {
        self == Self::New
    }
}

/// The reason why a message cannot be recorded at all. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{found}` cannot be used: it must have 1 to 100 characters, and no NUL")]
#[non_exhaustive]
pub struct InvalidMessage {
    /// Name of the invalid field.
    pub field: &'static str,
    /// The beginning of its value.
    pub found: String,
}

/// The reason why `receive` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The message itself is invalid; the transaction is untouched.
    #[error("invalid message: {0}")]
    Invalid(#[from] InvalidMessage),
    /// The database refused it; roll back and repeat the transaction.
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

/// Returns the identities of a batch, each once and sorted, so that two consumers with the same
/// events wait for each other instead of deadlocking.
pub fn identities(events: &[Incoming]) -> Result<Vec<&str>, InvalidMessage> {
    for event in events {
        check("the event's identity", &event.event_id)?;
    }
    let mut ids: Vec<&str> = events.iter().map(|event| event.event_id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Returns the results for a batch in its order. If an identity occurs twice, the first one is new.
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

/// Warns about an event that was retried or replayed after the inbox forgot it: it looks new.
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

/// Makes `receive`, `receive_all` and `receive_dead` for a database that takes a statement per
/// step: the identities, the dead letter, the ledger.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
macro_rules! receive_in_steps {
    (
        $connection:ty,
        busy: $busy:literal,
        insert_new: $insert_new:path,
        dead: $dead:expr,
        letter: $letter:expr,
        ledger: $ledger:expr $(,)?
    ) => {
        /// Records one event in the caller's transaction, together with the caller's changes.
        ///
        /// # Errors
        /// [`ReceiveError::Invalid`](crate::ReceiveError::Invalid) before anything is sent;
        /// [`ReceiveError::Database`](crate::ReceiveError::Database) otherwise. After
        #[doc = $busy]
        pub async fn receive(
            connection: &mut $connection,
            inbox: &$crate::Inbox,
            event: &$crate::Incoming,
        ) -> Result<$crate::Received, $crate::ReceiveError> {
            let answers = receive_all(connection, inbox, std::slice::from_ref(event)).await?;
            Ok(answers.first().copied().unwrap_or($crate::Received::Duplicate))
        }

        /// Records many events with one statement. Returns the results in the given order; an
        /// identity that occurs twice is new once.
        ///
        /// # Errors
        /// The errors of [`receive`]; one invalid identity refuses the batch before anything is
        /// sent.
        pub async fn receive_all(
            connection: &mut $connection,
            inbox: &$crate::Inbox,
            events: &[$crate::Incoming],
        ) -> Result<Vec<$crate::Received>, $crate::ReceiveError> {
            let ids = $crate::inbox::identities(events)?;
            if ids.is_empty() {
                return Ok(Vec::new());
            }
            let fresh: Vec<String> = $insert_new(&mut *connection, inbox, &ids).await?;
            ledger(connection, inbox, events.len(), fresh.len()).await?;
            Ok($crate::inbox::answers(inbox, events, fresh))
        }

        /// Records a message that cannot be processed as a dead letter, which operators see. A
        /// message that was received before does not get one.
        ///
        /// # Errors
        /// The errors of [`receive`].
        pub async fn receive_dead(
            connection: &mut $connection,
            inbox: &$crate::Inbox,
            message: &$crate::DeadMessage<'_>,
        ) -> Result<$crate::Received, $crate::ReceiveError> {
            $crate::inbox::identities(std::slice::from_ref(message.event))?;
            let fresh = sqlx::query($dead)
                .bind(inbox.consumer())
                .bind(&message.event.event_id)
                .execute(&mut *connection)
                .await?
                .rows_affected();
            ledger(connection, inbox, 1, usize::from(fresh > 0)).await?;
            if fresh == 0 {
                return Ok($crate::Received::Duplicate);
            }
            sqlx::query($letter)
                .bind(inbox.consumer())
                .bind(&message.event.event_id)
                .bind(message.source())
                .bind(message.key)
                .bind(message.headers_json())
                .bind(message.payload)
                .bind(message.error())
                .execute(connection)
                .await?;
            Ok($crate::Received::New)
        }

        async fn ledger(
            connection: &mut $connection,
            inbox: &$crate::Inbox,
            received: usize,
            fresh: usize,
        ) -> Result<(), sqlx::Error> {
            sqlx::query($ledger)
                .bind(inbox.consumer())
                .bind(received as i64)
                .bind((received - fresh) as i64)
                .execute(connection)
                .await
                .map(|_| ())
        }
    };
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) use receive_in_steps;

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
