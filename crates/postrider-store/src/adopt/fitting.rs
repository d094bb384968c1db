//! Checks a mapping against the columns of a table.

use std::collections::BTreeMap;

use postrider::limits;

use super::{Adoption, Field, LetterField};
use crate::StoreError;
use crate::contract::Result;

/// The type of a column, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Boolean,
    Text,
    Json,
    Uuid,
    /// A time without a zone, in the time zone of the configuration.
    LocalTime,
    /// A point in time.
    Instant,
    /// One of a fixed set of words.
    Words(Vec<String>),
    Other,
}

/// A column, as the database describes it.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The database's spelling of the type.
    pub(crate) type_name: String,
    /// Whether a text comes back as it was written. Types of documents put keys into another order.
    pub(crate) keeps_text: bool,
    /// Maximum number of characters, if there is one.
    pub(crate) chars_max: Option<i64>,
    /// Maximum number of bytes, if that is the limit. A character has up to four.
    pub(crate) bytes_max: Option<i64>,
    /// The character set, if columns of one database can differ in it.
    pub(crate) charset: Option<String>,
    pub(crate) not_null: bool,
    pub(crate) has_default: bool,
    /// Whether a unique index covers this column alone.
    pub(crate) unique: bool,
}

impl Column {
    /// Returns whether the column's character set has all of these characters, as far as this
    /// program knows.
    fn has_characters(&self, text: &str) -> bool {
        let last = match self.charset.as_deref() {
            Some("ascii") => '\u{7f}',
            Some("latin1") => '\u{ff}',
            Some("utf8mb3" | "utf8") => '\u{ffff}',
            _ => char::MAX,
        };
        text.chars().all(|c| c <= last)
    }

    /// Returns the number of characters that fit whatever they are.
    pub(crate) fn safe_chars_max(&self) -> Option<i64> {
        self.chars_max.or(self.bytes_max.map(|bytes| bytes / 4))
    }
}

/// Fields that a dead letter copies unchanged from the adopted table.
pub(super) const COPIED: [(LetterField, Field); 5] = [
    (LetterField::AggregateType, Field::AggregateType),
    (LetterField::AggregateId, Field::AggregateId),
    (LetterField::EventType, Field::EventType),
    (LetterField::Payload, Field::Payload),
    (LetterField::RequestId, Field::RequestId),
];

/// A mapping whose columns exist and fit.
#[derive(Debug)]
pub(crate) struct Fitted<'a> {
    pub(crate) adoption: &'a Adoption,
    pub(crate) columns: BTreeMap<Field, Column>,
    pub(crate) letters: BTreeMap<LetterField, Column>,
    /// Findings that do not prevent the adoption but that an operator should know.
    pub(crate) notes: Vec<String>,
}

impl<'a> Fitted<'a> {
    /// Checks a mapping against the columns `table` and `letters` that were found; an empty list
    /// means that the table does not exist.
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
        let payload = &self.columns[&Field::Payload];
        if !payload.keeps_text && self.columns.contains_key(&Field::ContentHash) {
            return refuse(format!(
                "table `{table}`: column `{}` is {}, which keeps a document and not its text, so \
                 that no content_hash would fit; make it {}text, or leave \
                 columns.content_hash out",
                payload.name,
                payload.type_name,
                if payload.type_name == "jsonb" { "json or " } else { "" },
            ));
        }
        let Some(status) = self.columns.get(&Field::Status) else { return Ok(()) };
        for (state, word) in self.adoption.states.each() {
            let fits = match &status.kind {
                Kind::Words(words) => words.iter().any(|known| known == word),
                _ => {
                    status.has_characters(word)
                        && status.chars_max.is_none_or(|max| word.chars().count() as i64 <= max)
                }
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
        let narrow = original.kind == Kind::Text && original.chars_max.is_some_and(|max| max < 36);
        if narrow || (original.kind == Kind::Integer) != (id.kind == Kind::Integer) {
            return refuse(format!(
                "table `{table}`: column `{}` ({}) cannot hold an id of `{}` ({}); map another \
                 column to dead_letters.columns.original_id",
                original.name, original.type_name, self.adoption.table, id.type_name
            ));
        }
        let own = &self.letters[&LetterField::Id];
        if !own.has_default {
            return refuse(format!(
                "table `{table}`: column `{}` ({}) has no default, so a dead letter could not be \
                 written; let the database number it, or map another column to \
                 dead_letters.columns.id",
                own.name, own.type_name
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
        self.check_copies(table)?;
        self.check_payloads(table)
    }

    /// Checks columns of the dead-letter table that are not text, such as numbers and fixed words:
    /// they accept the adopted table's values only if they have the same type there.
    fn check_copies(&self, table: &str) -> Result<()> {
        for (field, source) in COPIED {
            let Some(copy) = self.letters.get(&field).filter(|copy| copy.kind != Kind::Text) else {
                continue;
            };
            let given = self.columns.get(&source);
            let constant = self.adoption.constants.contains_key(&source);
            let fits = given.is_some_and(|given| {
                let wide = copy.kind == Kind::Integer && copy.type_name.starts_with("bigint");
                let same = given.type_name == copy.type_name || wide || copy.kind == Kind::Json;
                given.kind == copy.kind && same && (given.not_null || !constant)
            });
            if !fits {
                return refuse(format!(
                    "table `{table}`: column `{}` ({}) cannot hold every {source} of `{}` ({}); \
                     make it text, or leave dead_letters.columns.{field} out",
                    copy.name,
                    copy.type_name,
                    self.adoption.table,
                    given.map_or("a constant", |given| given.type_name.as_str())
                ));
            }
        }
        let headers = self.letters.get(&LetterField::Headers);
        match headers.filter(|copy| !matches!(copy.kind, Kind::Text | Kind::Json)) {
            None => Ok(()),
            Some(copy) => refuse(format!(
                "table `{table}`: column `{}` ({}) cannot hold headers; make it text or JSON, or \
                 leave dead_letters.columns.headers out",
                copy.name, copy.type_name
            )),
        }
    }

    /// Checks that a payload fits the dead-letter table uncut, with all of its characters.
    fn check_payloads(&self, table: &str) -> Result<()> {
        let body = &self.columns[&Field::Payload];
        let Some(copy) = self.letters.get(&LetterField::Payload) else { return Ok(()) };
        let (own, of_copy) = (body.charset.as_deref(), copy.charset.as_deref());
        if let (Some(own), Some(of_copy)) = (own, of_copy)
            && own != of_copy
            && own != "ascii"
            && of_copy != "utf8mb4"
        {
            return refuse(format!(
                "table `{table}`: column `{}` has the character set {of_copy}, which lacks \
                 characters that a payload of `{}` may have ({own}): they would be lost in a dead \
                 letter; convert it to utf8mb4, or leave dead_letters.columns.payload out",
                copy.name, self.adoption.table,
            ));
        }
        // The same text has the same number of bytes in these character sets.
        let alike = own == of_copy || own.is_some_and(|own| own == "ascii" || own == "utf8mb3");
        let fits = match (body.bytes_max, copy.bytes_max) {
            (Some(given), Some(room)) if alike => given <= room,
            _ => {
                let most = body.chars_max.or(body.bytes_max).unwrap_or(i64::MAX);
                most <= copy.safe_chars_max().unwrap_or(i64::MAX)
            }
        };
        match fits || copy.kind != Kind::Text {
            true => Ok(()),
            false => refuse(format!(
                "table `{table}`: column `{}` ({}) is too small for a payload of `{}` ({}): a dead \
                 letter would be cut; make it larger, or leave dead_letters.columns.payload out",
                copy.name, copy.type_name, self.adoption.table, body.type_name
            )),
        }
    }

    /// Notes values that the table accepts and an event does not: their insert fails.
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
                    "note: `{}`.`{}` may hold more than the {max} characters of an event's \
                     {field}; an insert of a longer one is refused",
                    self.adoption.table, column.name
                ));
            }
        }
    }
}

fn refuse<T>(message: String) -> Result<T> {
    Err(StoreError::Schema(message))
}

/// Returns the mapped columns, or an error that names the missing one.
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

/// The kind of column that a field needs.
#[derive(Clone, Copy)]
enum Wanted {
    Id,
    /// Any type that converts to text.
    Readable,
    Text,
    /// A fixed set of words, which is checked, or any text.
    Word,
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
        Field::Status => Wanted::Word,
        Field::LastError | Field::LockedBy | Field::Response => Wanted::Text,
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
        Wanted::Text => (*kind == Kind::Text, "text"),
        Wanted::Word => (matches!(kind, Kind::Text | Kind::Words(_)), "text"),
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
