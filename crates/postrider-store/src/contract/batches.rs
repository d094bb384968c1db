//! Batches of a write-behind buffer. Each is saved exactly once, no matter which worker saves it
//! and how often it tries.
//!
//! Each batch has an id of its own. The transaction that saves its entries records the id first, so
//! of two concurrent attempts the second waits and then finds the batch decided. A batch that is
//! not to be saved is recorded as cancelled *before* its counts go anywhere else.

use std::time::Duration;

use async_trait::async_trait;
use postrider::{NewEvent, Outbox};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Lease, Result};
use crate::StoreError;

/// How long a decided batch is remembered. A batch that is saved again later than this counts
/// twice.
pub const BATCHES_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The decision about a batch. A batch that is not recorded is undecided: it may still be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchState {
    /// Its entries are in the target.
    Applied,
    /// It will never be saved under this id; its counts return to the buffer, or move to other
    /// batches.
    Cancelled,
    /// It was cancelled and its counts had nowhere to go: they are in the backup file.
    Dead,
    /// It was dead; an operator imported it from the backup file.
    Imported,
}

impl BatchState {
    /// Returns the spelling in the tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
            Self::Imported => "imported",
        }
    }
}

impl std::str::FromStr for BatchState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Applied, Self::Cancelled, Self::Dead, Self::Imported]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("unknown state of a batch `{text}`"))
    }
}

/// One count of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchEntry {
    /// The counted key.
    pub field: String,
    /// The amount to add.
    pub count: i64,
}

/// A batch to be saved in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Name of its buffer.
    pub buffer: String,
    /// Its identity, which never changes.
    pub id: Uuid,
    /// Sorted by field, each field once, so that concurrent batches wait for each other instead of
    /// deadlocking.
    entries: Vec<BatchEntry>,
}

impl Batch {
    /// Creates a batch of these entries, in any order; no field may occur twice.
    pub fn new(buffer: impl Into<String>, id: Uuid, mut entries: Vec<BatchEntry>) -> Self {
        entries.sort_unstable_by(|a, b| a.field.cmp(&b.field));
        Self { buffer: buffer.into(), id, entries }
    }

    /// Returns the entries, sorted by field.
    pub fn entries(&self) -> &[BatchEntry] {
        &self.entries
    }

    /// Returns the entries as events, for a target that is an outbox.
    pub(crate) fn events(&self, target: &EventTarget) -> Vec<NewEvent> {
        let event = |entry: &BatchEntry| {
            let payload = serde_json::json!({
                "buffer": self.buffer, "key": entry.field, "count": entry.count, "batch": self.id,
            });
            let payload = payload.to_string();
            NewEvent::new(&target.aggregate_type, &entry.field, &target.event_type, &payload)
        };
        self.entries.iter().map(event).collect()
    }
}

/// The destination of the entries of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchTarget {
    /// Counts are added to the rows of a table; missing rows are inserted.
    Table(TableTarget),
    /// Each entry becomes an event.
    Events(EventTarget),
}

/// A table that counts are added to. The names are validated here, which makes them safe to put
/// into SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableTarget {
    table: String,
    key_column: String,
    count_column: String,
}

impl TableTarget {
    /// Maximum length of the name of a table or column: PostgreSQL's limit.
    pub const NAME_CHARS_MAX: usize = 63;

    /// Creates a target. `key_column` needs a unique index or the primary key; `count_column` takes
    /// 64-bit integers.
    ///
    /// # Errors
    /// Names the argument that is not a plain identifier.
    pub fn new(table: &str, key_column: &str, count_column: &str) -> Result<Self, String> {
        let names = [("table", table), ("key_column", key_column), ("count_column", count_column)];
        for (argument, name) in names {
            if !plain(name) {
                return Err(format!(
                    "`{argument}` = `{name}`: use 1 to {} letters, digits and _, not starting with \
                     a digit",
                    Self::NAME_CHARS_MAX
                ));
            }
        }
        if key_column == count_column {
            return Err(format!(
                "key_column and count_column are both `{key_column}`: a column cannot be both the \
                 key and the count"
            ));
        }
        let [table, key_column, count_column] =
            [table, key_column, count_column].map(ToOwned::to_owned);
        Ok(Self { table, key_column, count_column })
    }

    /// Returns the table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Returns the column that identifies the rows.
    pub fn key_column(&self) -> &str {
        &self.key_column
    }

    /// Returns the column that counts are added to.
    pub fn count_column(&self) -> &str {
        &self.count_column
    }

    /// Puts the names into a statement with the markers `{table}`, `{key}` and `{count}`.
    pub(crate) fn sql(&self, template: &str) -> String {
        template
            .replace("{table}", &self.table)
            .replace("{key}", &self.key_column)
            .replace("{count}", &self.count_column)
    }
}

fn plain(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first
        && name.len() <= TableTarget::NAME_CHARS_MAX
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// An outbox that receives one event per entry: the aggregate id is the field, and the payload has
/// the buffer, key, count and batch id as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTarget {
    /// The outbox.
    pub outbox: Outbox,
    /// First half of the ordering key.
    pub aggregate_type: String,
    /// Type of the events.
    pub event_type: String,
}

/// The result of an attempt to save a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Application {
    /// It is saved now.
    Applied,
    /// It was decided before; nothing was written.
    Known(BatchState),
    /// The database refuses an entry (too long, too large, a constraint), and would refuse it
    /// again. Nothing was written.
    Refused(String),
}

/// The database's totals for a buffer, since its first batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BatchLedger {
    /// Entries saved by workers.
    pub applied: i64,
    /// Entries of batches that were cancelled.
    pub cancelled: i64,
    /// Entries of batches that were written to the backup file.
    pub dead: i64,
    /// Entries that an operator imported from the backup file.
    pub imported: i64,
}

impl BatchLedger {
    pub(crate) fn from_lines(lines: Vec<(String, i64)>) -> Result<Self> {
        let mut ledger = Self::default();
        for (kind, entries) in lines {
            let state = kind.parse().map_err(StoreError::Schema)?;
            *match state {
                BatchState::Applied => &mut ledger.applied,
                BatchState::Cancelled => &mut ledger.cancelled,
                BatchState::Dead => &mut ledger.dead,
                BatchState::Imported => &mut ledger.imported,
            } = entries;
        }
        Ok(ledger)
    }
}

/// The database operations of buffers.
#[async_trait]
pub trait Batches: Send + Sync {
    /// Checks that entries can be written to the target. The error names what is missing: the
    /// table, a column, or the unique key.
    async fn check_target(&self, target: &BatchTarget) -> Result<()>;

    /// Saves a batch and records its id, in one transaction that is fenced by the lease.
    async fn apply_batch(
        &self,
        lease: &Lease,
        batch: &Batch,
        target: &BatchTarget,
    ) -> Result<Application>;

    /// Records an undecided batch with this number of entries as cancelled. Returns its state
    /// afterwards, which may be that it was applied before.
    async fn cancel_batch(&self, buffer: &str, id: Uuid, entries: u64) -> Result<BatchState>;

    /// Records a cancelled batch as dead. Returns its state afterwards. The lease fences this: a
    /// worker that was declared dead must not mark a batch whose counts its successor has returned
    /// to the buffer.
    async fn mark_batch_dead(&self, lease: &Lease, buffer: &str, id: Uuid) -> Result<BatchState>;

    /// Saves a dead batch from the backup file, and records the import and its operator. Fails with
    /// [`StoreError::Refused`] if the counts are still elsewhere.
    async fn import_batch(
        &self,
        batch: &Batch,
        target: &BatchTarget,
        operator: &str,
    ) -> Result<Application>;

    /// Returns the states of these batches; those that are missing are undecided.
    async fn batch_states(&self, ids: &[Uuid]) -> Result<Vec<(Uuid, BatchState)>>;

    /// Returns the totals of a buffer.
    async fn batch_ledger(&self, buffer: &str) -> Result<BatchLedger>;

    /// Deletes batches that were decided longer ago than [`BATCHES_KEPT`], in chunks, and returns
    /// how many. Dead batches are kept until they are imported.
    async fn clean_batches(&self, buffer: &str, chunk: u32) -> Result<u64>;
}

/// The action of an import in the audit trail, where the buffer takes the place of the outbox.
pub(crate) const IMPORT_ACTION: &str = "buffer.import";

/// Returns whether an import may continue, given the recorded state of the batch.
pub(crate) fn importable(id: Uuid, found: Option<BatchState>) -> Result<Option<Application>> {
    match found {
        Some(BatchState::Dead) => Ok(None),
        Some(state @ (BatchState::Applied | BatchState::Imported)) => {
            Ok(Some(Application::Known(state)))
        }
        Some(BatchState::Cancelled) => Err(StoreError::Refused(format!(
            "batch {id} was not given up: its counts went back to the buffer, or still wait there"
        ))),
        None => Err(StoreError::Refused(format!(
            "batch {id} is not known to this database; importing it could count it twice"
        ))),
    }
}

/// Returns whether an error is about the data and not about the database. PostgreSQL and MariaDB:
/// classes 21 (two entries for one row, such as `1` and `01` for a number), 22 (data exception), 23
/// (constraint) and 44 (check option), and errors raised by triggers. SQLite: its own numbers for
/// constraint, mismatch and too big.
pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
    let Some(code) = error.as_database_error().and_then(|cause| cause.code()) else {
        // For example a text with a NUL, which the driver does not even send.
        return matches!(error, sqlx::Error::Encode(_));
    };
    #[cfg(feature = "mysql")]
    if let Some(error) = error
        .as_database_error()
        .and_then(|cause| cause.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>())
    {
        // Incorrect value, out of range, too long, truncated, result out of range, CHECK: some of
        // them under the catch-all HY000.
        if matches!(error.number(), 1264 | 1265 | 1292 | 1366 | 1406 | 1690 | 3819 | 4025) {
            return true;
        }
    }
    match code.len() {
        5 => {
            ["21", "22", "23", "44"].iter().any(|class| code.starts_with(class))
                || matches!(&*code, "P0001" | "45000")
        }
        _ => matches!(code.parse::<i32>().map(|code| code & 0xff), Ok(18..=20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_plain_identifiers_are_refused_by_name() {
        let long = "x".repeat(64);
        for name in ["", "a\"b", "a`b", "a b", "a;drop", "1a", "Ä", "a.b", &long] {
            for names in [[name, "k", "c"], ["t", name, "c"], ["t", "k", name]] {
                let error = TableTarget::new(names[0], names[1], names[2]).unwrap_err();
                assert!(error.contains(&format!("`{name}`")), "{error}");
            }
        }
        assert!(TableTarget::new("t", "k", "k").unwrap_err().contains("both"));
        let target = TableTarget::new("Likes", "post_id", "likes").unwrap();
        assert_eq!(target.sql("\"{table}\" {key} {count}"), "\"Likes\" post_id likes");
    }

    #[test]
    fn entries_are_sorted_whatever_order_they_come_in() {
        let entry = |field: &str| BatchEntry { field: field.to_owned(), count: 1 };
        let batch = Batch::new("likes", Uuid::nil(), vec![entry("b"), entry("a")]);
        assert_eq!(batch.entries(), [entry("a"), entry("b")]);
    }

    #[test]
    fn only_a_dead_batch_is_imported() {
        let id = Uuid::nil();
        assert_eq!(importable(id, Some(BatchState::Dead)).unwrap(), None);
        let known = importable(id, Some(BatchState::Imported)).unwrap();
        assert_eq!(known, Some(Application::Known(BatchState::Imported)));
        for found in [None, Some(BatchState::Cancelled)] {
            assert!(matches!(importable(id, found), Err(StoreError::Refused(_))));
        }
    }
}
