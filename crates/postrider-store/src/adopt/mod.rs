//! Adopted tables: existing tables of another program that an outbox serves unchanged.
//!
//! Triggers in the database keep both in step, so that each change happens in the transaction that
//! causes it: an insert into the adopted table appends to the outbox, and the state of the event is
//! written back. The relay, the dead letters and the ledger need no knowledge of it.

mod clauses;
mod field;
mod fitting;
mod letters;
mod rules;
mod statements;

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use clauses::{Clauses, Dialect};
pub use field::{Field, LetterField};
pub(crate) use fitting::{Column, Fitted, Kind};
pub(crate) use rules::{Rule, Rules};
pub(crate) use statements::{columns_and_values, trigger};

use postrider::{Outbox, internal::hex};

/// The adopted table's words for the states of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateWords {
    /// It waits to be delivered.
    pub pending: String,
    /// A relay is delivering it.
    pub processing: String,
    /// An attempt failed; it is tried again when due.
    pub failed: String,
    /// It was delivered.
    pub completed: String,
    /// It was given up.
    pub dead_letter: String,
}

impl Default for StateWords {
    fn default() -> Self {
        Self {
            pending: "PENDING".to_owned(),
            processing: "PROCESSING".to_owned(),
            failed: "FAILED".to_owned(),
            completed: "COMPLETED".to_owned(),
            dead_letter: "DEAD_LETTER".to_owned(),
        }
    }
}

/// A dead-letter table that belongs to an adopted table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptedLetters {
    /// Name of the table.
    pub table: String,
    /// Columns of the table, by field.
    pub columns: BTreeMap<LetterField, String>,
}

/// A table of another program that is adopted by an outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// Name of the table, in the schema of the outbox.
    pub table: String,
    /// Time zone of its time columns: "UTC", an offset such as "+09:00", or on PostgreSQL a name.
    pub time_zone: String,
    /// Columns of the table, by field.
    pub columns: BTreeMap<Field, String>,
    /// Values for rows without a value, or tables without a column: aggregate_type, aggregate_id or
    /// event_type.
    pub constants: BTreeMap<Field, String>,
    /// The table's words for the states.
    pub states: StateWords,
    /// Its dead-letter table, if it has one.
    pub dead_letters: Option<AdoptedLetters>,
    /// Whether delivered rows are marked and kept for the retention; otherwise they are deleted.
    pub keep_delivered: bool,
}

/// The reason why a mapping is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAdoption(String);

/// Maximum length of a name that both databases accept.
const NAME_CHARS_MAX: usize = 63;
/// Fields that every event must have, from a column or a constant.
const REQUIRED: [Field; 4] =
    [Field::AggregateType, Field::AggregateId, Field::EventType, Field::Payload];

/// Fields that are written back.
const WRITTEN: [Field; 11] = [
    Field::Status,
    Field::Processed,
    Field::RetryCount,
    Field::NextRetryAt,
    Field::LastError,
    Field::LockedBy,
    Field::LockedAt,
    Field::Version,
    Field::UpdatedAt,
    Field::DeliveredAt,
    Field::Response,
];

impl Adoption {
    /// Checks what can be checked without the table.
    ///
    /// # Errors
    /// Names the key, the value and what is allowed.
    pub fn validate(&self) -> Result<(), InvalidAdoption> {
        let invalid = |message: String| Err(InvalidAdoption(message));
        name("table", &self.table)?;
        for (field, column) in &self.columns {
            name(&format!("columns.{field}"), column)?;
        }
        for field in WRITTEN {
            let Some(column) = self.columns.get(&field) else { continue };
            let same = |(other, name): &(&Field, &String)| **other != field && *name == column;
            if let Some((other, _)) = self.columns.iter().find(same) {
                return invalid(format!(
                    "columns.{field} and columns.{other} are both `{column}`: what Postrider \
                     writes needs a column of its own"
                ));
            }
        }
        if !self.columns.contains_key(&Field::Id) {
            return invalid("columns.id is missing: it names the primary key".to_owned());
        }
        for (field, value) in &self.constants {
            if !REQUIRED[..3].contains(field) {
                return invalid(format!(
                    "constants.{field}: only aggregate_type, aggregate_id and event_type can be \
                     constant"
                ));
            }
            literal(&format!("constants.{field}"), value)?;
        }
        for field in REQUIRED {
            if !self.columns.contains_key(&field) && !self.constants.contains_key(&field) {
                return invalid(format!("columns.{field} is missing: every event has one"));
            }
        }
        for (state, word) in self.states.each() {
            literal(&format!("states.{state}"), word)?;
        }
        if self.marks() && self.delivered_time().is_none() {
            return invalid(
                "columns.delivered_at (or updated_at) is missing: delivered rows are kept for the \
                 retention, counted from that time; or set on_success = \"delete\""
                    .to_owned(),
            );
        }
        zone(&self.time_zone)?;
        self.dead_letters.as_ref().map_or(Ok(()), AdoptedLetters::validate)
    }

    /// Returns whether a delivered row is marked and kept; without a column to mark it, it is
    /// deleted.
    pub(crate) fn marks(&self) -> bool {
        self.keep_delivered && (self.has(Field::Status) || self.has(Field::Processed))
    }

    /// Returns the column that holds the delivery time of a marked row.
    pub(crate) fn delivered_time(&self) -> Option<Field> {
        [Field::DeliveredAt, Field::UpdatedAt].into_iter().find(|field| self.has(*field))
    }

    pub(crate) fn has(&self, field: Field) -> bool {
        self.columns.contains_key(&field)
    }
}

impl AdoptedLetters {
    fn validate(&self) -> Result<(), InvalidAdoption> {
        name("dead_letters.table", &self.table)?;
        for (field, column) in &self.columns {
            name(&format!("dead_letters.columns.{field}"), column)?;
        }
        for field in [LetterField::Id, LetterField::OriginalId] {
            if !self.columns.contains_key(&field) {
                return Err(InvalidAdoption(format!(
                    "dead_letters.columns.{field} is missing: it tells which row was given up"
                )));
            }
        }
        Ok(())
    }
}

impl StateWords {
    /// Returns the name and the word of each state.
    pub(crate) fn each(&self) -> [(&'static str, &str); 5] {
        [
            ("pending", &self.pending),
            ("processing", &self.processing),
            ("failed", &self.failed),
            ("completed", &self.completed),
            ("dead_letter", &self.dead_letter),
        ]
    }
}

/// Generates a prefix for the event ids made from a table's integer ids; a UUID of version 8 holds
/// it before the id. It is generated once per adoption and kept in the database, so that a row has
/// the same event id at every import, and rows of another database never have it.
pub(crate) fn new_prefix() -> String {
    as_prefix(&Uuid::new_v4().simple().to_string())
}

/// Returns the prefix that older programs used. It was made from the outbox's name alone, and so
/// was the same in every database.
pub(crate) fn prefix_of_name(outbox: &Outbox) -> String {
    as_prefix(&hex(&Sha256::digest(outbox.name())))
}

fn as_prefix(digits: &str) -> String {
    format!("{}-{}", &digits[..8], &digits[8..12])
}

/// Checks that a name is safe to put into SQL, quoted.
fn name(key: &str, value: &str) -> Result<(), InvalidAdoption> {
    let mut chars = value.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let plain = first && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    match plain && value.len() <= NAME_CHARS_MAX {
        true => Ok(()),
        false => Err(InvalidAdoption(format!(
            "{key} = \"{value}\": use 1 to {NAME_CHARS_MAX} characters, letters, digits, _ and $, \
             not starting with a digit"
        ))),
    }
}

/// Checks that a text is safe to put into SQL between quotes, on both databases.
fn literal(key: &str, value: &str) -> Result<(), InvalidAdoption> {
    let plain = |c: char| !c.is_control() && !matches!(c, '\'' | '\\' | '{' | '}');
    match (1..=100).contains(&value.chars().count()) && value.chars().all(plain) {
        true => Ok(()),
        false => Err(InvalidAdoption(format!(
            "{key} = \"{value}\": use 1 to 100 characters, without quotes, backslashes and braces"
        ))),
    }
}

/// Returns whether a time zone is an offset from UTC.
pub(crate) fn is_offset(zone: &str) -> bool {
    let bytes = zone.as_bytes();
    bytes.len() == 6
        && matches!(bytes[0], b'+' | b'-')
        && bytes[3] == b':'
        && [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit())
}

fn zone(value: &str) -> Result<(), InvalidAdoption> {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '/' | '-' | '+');
    let named = value.starts_with(|c: char| c.is_ascii_alphabetic()) && value.chars().all(letters);
    match is_offset(value) || named {
        true => Ok(()),
        false => Err(InvalidAdoption(format!(
            "time_zone = \"{value}\": write \"UTC\", an offset such as \"+09:00\", or (on \
             PostgreSQL) a name such as \"Asia/Seoul\""
        ))),
    }
}
