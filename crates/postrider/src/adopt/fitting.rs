//! A mapping held against the columns that a table has.

use std::collections::BTreeMap;

use super::{Adoption, Field, LetterField};
use crate::StoreError;
use crate::event::limits;
use crate::store::Result;

/// What a column can hold, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Boolean,
    Text,
    Json,
    Uuid,
    /// A time without a zone: on the clock that the configuration names.
    LocalTime,
    /// A point in time.
    Instant,
    /// One of these words.
    Words(Vec<String>),
    Other,
}

/// A column as the database describes it.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// As the database writes it.
    pub(crate) type_name: String,
    /// Characters that fit, where there is a limit.
    pub(crate) chars_max: Option<i64>,
    /// Characters that fit in any case, where the limit is in bytes.
    pub(crate) safe_chars_max: Option<i64>,
    pub(crate) not_null: bool,
    pub(crate) has_default: bool,
    /// Whether a unique index holds this column alone.
    pub(crate) unique: bool,
}

/// A mapping whose columns are there and fit.
#[derive(Debug)]
pub(crate) struct Fitted<'a> {
    pub(crate) adoption: &'a Adoption,
    pub(crate) columns: BTreeMap<Field, Column>,
    pub(crate) letters: BTreeMap<LetterField, Column>,
    /// What works, and somebody should know.
    pub(crate) notes: Vec<String>,
}

impl<'a> Fitted<'a> {
    /// Compares. `table` and `letters` are the columns that were found; none means no such table.
    pub(crate) fn new(
        adoption: &'a Adoption,
        table: Vec<Column>,
        letters: Vec<Column>,
    ) -> Result<Self> {
        let columns = found(&adoption.table, "columns", &adoption.columns, &table)?;
        for (field, column) in &columns {
            check_kind(&adoption.table, &format!("columns.{field}"), column, wanted(*field))?;
        }
        let mut fitted = Self { adoption, columns, letters: BTreeMap::new(), notes: Vec::new() };
        fitted.check_table()?;
        if let Some(wanted) = &adoption.dead_letters {
            let key = "dead_letters.columns";
            fitted.letters = found(&wanted.table, key, &wanted.columns, &letters)?;
            fitted.check_letters(&wanted.table, &letters)?;
        }
        fitted.note_limits();
        Ok(fitted)
    }

    pub(crate) fn has_uuid(&self) -> bool {
        self.columns[&Field::Id].kind != Kind::Integer
    }

    fn check_table(&self) -> Result<()> {
        let table = &self.adoption.table;
        let id = &self.columns[&Field::Id];
        let uuid = match id.kind {
            Kind::Integer | Kind::Uuid => true,
            Kind::Text => id.chars_max == Some(36),
            _ => false,
        };
        if !uuid || !id.unique {
            return refuse(format!(
                "table `{table}`: column `{}` ({}) cannot be the id: it must be the primary key or \
                 unique, and an integer, a uuid, or 36 characters that hold one",
                id.name, id.type_name
            ));
        }
        if let Some(request) = self.columns.get(&Field::RequestId).filter(|column| !column.unique) {
            return refuse(format!(
                "table `{table}`: column `{}` is mapped to request_id, but is not unique there: a \
                 repeat that its writers may make today would be refused; add a unique index, or \
                 leave columns.request_id out",
                request.name
            ));
        }
        let Some(status) = self.columns.get(&Field::Status) else { return Ok(()) };
        for (state, word) in self.adoption.states.each() {
            let fits = match &status.kind {
                Kind::Words(words) => words.iter().any(|known| known == word),
                _ => status.chars_max.is_none_or(|max| word.chars().count() as i64 <= max),
            };
            if !fits {
                return refuse(format!(
                    "table `{table}`: column `{}` ({}) cannot hold \"{word}\"; set states.{state} \
                     to a word that it can",
                    status.name, status.type_name
                ));
            }
        }
        Ok(())
    }

    fn check_letters(&self, table: &str, all: &[Column]) -> Result<()> {
        for (field, column) in &self.letters {
            let key = format!("dead_letters.columns.{field}");
            check_kind(table, &key, column, wanted_of_letter(*field))?;
        }
        let (original, id) = (&self.letters[&LetterField::OriginalId], &self.columns[&Field::Id]);
        if (original.kind == Kind::Integer) != (id.kind == Kind::Integer) {
            return refuse(format!(
                "table `{table}`: column `{}` ({}) cannot hold an id of `{}` ({}); map another \
                 column to dead_letters.columns.original_id",
                original.name, original.type_name, self.adoption.table, id.type_name
            ));
        }
        let mapped = |column: &&Column| self.letters.values().any(|m| m.name == column.name);
        let missing = |column: &&Column| column.not_null && !column.has_default && !mapped(column);
        if let Some(column) = all.iter().find(missing) {
            return refuse(format!(
                "table `{table}`: column `{}` must not be empty and has no default, so a dead \
                 letter could not be written; map it in [outbox.adopt.dead_letters.columns], or \
                 give it a default",
                column.name
            ));
        }
        let body = &self.columns[&Field::Payload];
        match self.letters.get(&LetterField::Payload).filter(|copy| room(copy) < room(body)) {
            None => Ok(()),
            Some(column) => refuse(format!(
                "table `{table}`: column `{}` ({}) is too small for a payload of `{}` ({}): a dead \
                 letter would be cut; make it as large",
                column.name, column.type_name, self.adoption.table, body.type_name
            )),
        }
    }

    /// Values that the table takes and an event does not: an insert of one is refused.
    fn note_limits(&mut self) {
        for (field, max) in [
            (Field::AggregateType, limits::AGGREGATE_TYPE_CHARS_MAX),
            (Field::AggregateId, limits::AGGREGATE_ID_CHARS_MAX),
            (Field::EventType, limits::EVENT_TYPE_CHARS_MAX),
            (Field::RequestId, limits::REQUEST_ID_CHARS_MAX),
        ] {
            let Some(column) = self.columns.get(&field) else { continue };
            if column.kind == Kind::Text && column.chars_max.is_none_or(|found| found > max as i64)
            {
                self.notes.push(format!(
                    "note: `{}`.`{}` may hold more than the {max} characters of an event's {field}; \
                     an insert of a longer one is refused",
                    self.adoption.table, column.name
                ));
            }
        }
    }
}

/// Characters that a column holds in any case.
fn room(column: &Column) -> i64 {
    column.chars_max.or(column.safe_chars_max).unwrap_or(i64::MAX)
}

fn refuse<T>(message: String) -> Result<T> {
    Err(StoreError::Schema(message))
}

/// The mapped columns, or which is not there.
fn found<F: Copy + Ord + std::fmt::Display>(
    table: &str,
    key: &str,
    wanted: &BTreeMap<F, String>,
    there: &[Column],
) -> Result<BTreeMap<F, Column>> {
    if there.is_empty() {
        return refuse(format!(
            "there is no table `{table}` in this schema, or this user may not see it; check the \
             name in [outbox.adopt]"
        ));
    }
    let find = |(field, name): (&F, &String)| {
        let column = there.iter().find(|column| column.name == *name);
        column.cloned().map(|column| (*field, column)).ok_or_else(|| {
            let names: Vec<&str> = there.iter().map(|column| column.name.as_str()).collect();
            StoreError::Schema(format!(
                "table `{table}` has no column `{name}`, which {key}.{field} names; it has: {}",
                names.join(", ")
            ))
        })
    };
    wanted.iter().map(find).collect()
}

/// What a field needs.
#[derive(Clone, Copy)]
enum Wanted {
    Id,
    /// Anything that reads as text.
    Readable,
    Text,
    Integer,
    Flag,
    Time,
}

fn wanted(field: Field) -> Wanted {
    match field {
        Field::Id => Wanted::Id,
        Field::AggregateType
        | Field::AggregateId
        | Field::EventType
        | Field::Payload
        | Field::Headers
        | Field::RequestId
        | Field::ContentHash => Wanted::Readable,
        Field::Status | Field::LastError | Field::LockedBy | Field::Response => Wanted::Text,
        Field::Processed => Wanted::Flag,
        Field::RetryCount | Field::MaxRetries | Field::Version => Wanted::Integer,
        Field::NextRetryAt
        | Field::LockedAt
        | Field::CreatedAt
        | Field::UpdatedAt
        | Field::DeliveredAt => Wanted::Time,
    }
}

fn wanted_of_letter(field: LetterField) -> Wanted {
    match field {
        LetterField::OriginalId => Wanted::Id,
        LetterField::Id | LetterField::RetryCount => Wanted::Integer,
        LetterField::AggregateType
        | LetterField::AggregateId
        | LetterField::EventType
        | LetterField::Payload
        | LetterField::Headers
        | LetterField::RequestId => Wanted::Readable,
        LetterField::Reason
        | LetterField::ErrorMessage
        | LetterField::ErrorDetail
        | LetterField::ResolvedBy
        | LetterField::ResolutionNote => Wanted::Text,
        LetterField::Resolved => Wanted::Flag,
        LetterField::FailedAt
        | LetterField::ResolvedAt
        | LetterField::CreatedAt
        | LetterField::UpdatedAt => Wanted::Time,
    }
}

fn check_kind(table: &str, key: &str, column: &Column, wanted: Wanted) -> Result<()> {
    let kind = &column.kind;
    let (fits, what) = match wanted {
        Wanted::Id => {
            (matches!(kind, Kind::Integer | Kind::Uuid | Kind::Text), "an integer or a uuid")
        }
        Wanted::Readable => (
            matches!(kind, Kind::Text | Kind::Json | Kind::Integer | Kind::Uuid | Kind::Words(_)),
            "text, JSON, an integer or a uuid",
        ),
        Wanted::Text => (matches!(kind, Kind::Text | Kind::Words(_)), "text"),
        Wanted::Integer => (*kind == Kind::Integer, "an integer"),
        Wanted::Flag => (*kind == Kind::Boolean, "a boolean"),
        Wanted::Time => (matches!(kind, Kind::LocalTime | Kind::Instant), "a date with time"),
    };
    if fits {
        return Ok(());
    }
    refuse(format!(
        "table `{table}`: column `{}` is {}, but {key} must be {what}; map another column, or \
         leave the key out",
        column.name, column.type_name
    ))
}
