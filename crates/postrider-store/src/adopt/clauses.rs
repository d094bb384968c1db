//! The parts of the triggers and statements that depend on the mapping, in the SQL dialect of the
//! database.

use postrider::{Outbox, limits::MAX_RETRIES_MAX};

use super::{Column, Field, Fitted, Kind};
use crate::Status;

/// The differences between the databases.
pub(crate) trait Dialect {
    /// The current time, as the outbox's tables store it.
    const NOW: &'static str;
    /// Quotes a name.
    fn quoted(&self, name: &str) -> String;
    /// Converts a value of the adopted table to text.
    fn as_text(&self, value: &str, column: &Column) -> String;
    /// Converts headers to a JSON object. An invalid value must not make the application's insert
    /// fail.
    fn as_headers(&self, value: &str, outbox: &Outbox) -> String;
    /// Converts a time of the adopted table to the outbox's representation.
    fn as_utc(&self, value: &str, column: &Column) -> String;
    /// Converts a time of the outbox to the adopted table's representation.
    fn as_local(&self, value: &str, column: &Column) -> String;
    /// Converts a text so that it can be compared with a request id of the outbox.
    fn as_key(&self, value: &str) -> String;
    /// Cuts a value to the length of the column.
    fn cut(&self, value: &str, column: &Column) -> String;
    /// Converts a value for a column that is known to be large enough.
    fn whole(&self, value: &str, column: &Column) -> String;
    /// Tests whether a flag is not set.
    fn unset(&self, value: &str) -> String;
    /// Returns the event id of a row with this integer id.
    fn identity(&self, id: &str, prefix: &str) -> String;
    /// Returns the integer id of the row with this event id.
    fn id_of(&self, identity: &str) -> String;
    /// Returns the event id of a row with this UUID.
    fn uuid_identity(&self, id: &str) -> String;
    /// Returns the UUID of the row with this event id.
    fn uuid_of(&self, identity: &str, column: &Column) -> String;
    /// Tests whether two values differ, where NULL counts as a value.
    fn differ(&self, one: &str, other: &str) -> String;
    /// Makes a subquery usable in an update of the table that it reads.
    fn of_the_same_table(&self, subquery: &str) -> String {
        subquery.to_owned()
    }
}

/// A fitted mapping in the SQL dialect of a database.
pub(crate) struct Clauses<'a, D> {
    pub(crate) fitted: &'a Fitted<'a>,
    pub(crate) outbox: &'a Outbox,
    /// Prefix of event ids that are made from integer ids.
    pub(crate) prefix: String,
    pub(crate) dialect: D,
}

/// Column names, each with the value that is assigned to it.
pub(crate) type Assignments = Vec<(String, String)>;

impl<D: Dialect> Clauses<'_, D> {
    pub(crate) fn id(&self) -> String {
        self.dialect.quoted(&self.fitted.columns[&Field::Id].name)
    }

    /// Returns the event id of a row of the adopted table with this `id`.
    pub(crate) fn identity(&self, id: &str) -> String {
        match self.fitted.has_uuid() {
            true => self.dialect.uuid_identity(id),
            false => self.dialect.identity(id, &self.prefix),
        }
    }

    /// Returns the id of the adopted row of `event_id`.
    pub(crate) fn row_of(&self, event_id: &str) -> String {
        self.id_for(event_id, &self.fitted.columns[&Field::Id])
    }

    /// Like [`row_of`](Self::row_of), in the type of the given column of the adopted tables.
    pub(super) fn id_for(&self, event_id: &str, column: &Column) -> String {
        match self.fitted.has_uuid() {
            true => self.dialect.uuid_of(event_id, column),
            false => self.dialect.id_of(event_id),
        }
    }

    /// Returns the LIKE pattern of the event ids that come from the adopted table.
    pub(crate) fn identities(&self) -> String {
        match self.fitted.has_uuid() {
            true => "%".to_owned(),
            false => format!("{}-8___-8%", self.prefix),
        }
    }

    /// Tests whether a row (`NEW.` or another name) is to be delivered, if its state is one of
    /// these.
    pub(crate) fn due(&self, row: &str, states: &[Status]) -> String {
        let mut conditions = Vec::new();
        if let Some(column) = self.fitted.columns.get(&Field::Status) {
            let state = self.dialect.as_text(&self.of(row, column), column);
            let words: Vec<String> =
                states.iter().map(|state| format!("'{}'", self.word(*state))).collect();
            let pending = self.word(Status::Pending);
            conditions.push(format!("COALESCE({state}, '{pending}') IN ({})", words.join(", ")));
        }
        if let Some(column) = self.fitted.columns.get(&Field::Processed) {
            conditions.push(self.dialect.unset(&self.of(row, column)));
        }
        if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") }
    }

    /// Tests whether a row of the adopted table was delivered and kept.
    pub(crate) fn delivered(&self, row: &str) -> String {
        let columns = &self.fitted.columns;
        match (columns.get(&Field::Status), columns.get(&Field::Processed)) {
            (Some(column), _) => format!(
                "{} = '{}'",
                self.dialect.as_text(&self.of(row, column), column),
                self.word(Status::Completed)
            ),
            (None, Some(column)) => {
                format!("NOT ({})", self.dialect.unset(&self.of(row, column)))
            }
            (None, None) => "FALSE".to_owned(),
        }
    }

    /// Returns the columns of an event that are taken from a row of the adopted table.
    pub(crate) fn event(&self, row: &str) -> Assignments {
        let d = &self.dialect;
        let mut event =
            vec![("event_id".to_owned(), self.identity(&format!("{row}{}", self.id())))];
        for (field, name) in [
            (Field::AggregateType, "aggregate_type"),
            (Field::AggregateId, "aggregate_id"),
            (Field::EventType, "event_type"),
            (Field::Payload, "payload"),
        ] {
            event.push((name.to_owned(), self.required(row, field)));
        }
        for (field, name) in
            [(Field::RequestId, "request_id"), (Field::ContentHash, "content_hash")]
        {
            if let Some(column) = self.fitted.columns.get(&field) {
                event.push((name.to_owned(), d.as_text(&self.of(row, column), column)));
            }
        }
        if let Some(column) = self.fitted.columns.get(&Field::Headers) {
            let stored = d.as_text(&self.of(row, column), column);
            event.push(("headers".to_owned(), d.as_headers(&stored, self.outbox)));
        }
        if let Some(column) = self.fitted.columns.get(&Field::RetryCount) {
            let count = format!("COALESCE({}, 0)", self.of(row, column));
            let count = format!("LEAST(GREATEST({count}, 0), {MAX_RETRIES_MAX})");
            event.push(("retry_count".to_owned(), count));
        }
        if let Some(column) = self.fitted.columns.get(&Field::MaxRetries) {
            let max = self.of(row, column);
            let allowed = format!("CASE WHEN {max} BETWEEN 1 AND {MAX_RETRIES_MAX} THEN {max} END");
            event.push(("max_retries".to_owned(), allowed));
        }
        if let Some(column) = self.fitted.columns.get(&Field::NextRetryAt) {
            // NULL means fresh, and claims take fresh rows first, so a time that has passed becomes
            // NULL.
            let at = self.time(row, column);
            event.push((
                "next_retry_at".to_owned(),
                format!("CASE WHEN {at} > {} THEN {at} END", D::NOW),
            ));
        }
        if let Some(column) = self.fitted.columns.get(&Field::CreatedAt) {
            let at = self.time(row, column);
            event.push((
                "created_at".to_owned(),
                format!("LEAST(COALESCE({at}, {now}), {now})", now = D::NOW),
            ));
        }
        event
    }

    /// Returns the changes of the adopted row when the event (`NEW.`) changes.
    pub(crate) fn state(&self) -> Assignments {
        let mut set = Vec::new();
        if let Some(column) = self.fitted.columns.get(&Field::Status) {
            let words = [Status::Pending, Status::Processing, Status::Failed, Status::DeadLetter];
            let cases: Vec<String> = words
                .iter()
                .map(|state| format!("WHEN '{}' THEN '{}'", state.as_str(), self.word(*state)))
                .collect();
            let word = format!("CASE NEW.status {} END", cases.join(" "));
            set.push(self.put(column, &word));
        }
        for (field, value) in [
            (Field::RetryCount, "NEW.retry_count"),
            (Field::LastError, "NEW.last_error"),
            (Field::LockedBy, "NEW.locked_by"),
            (Field::NextRetryAt, "NEW.next_retry_at"),
            (Field::LockedAt, "NEW.locked_at"),
        ] {
            if let Some(column) = self.fitted.columns.get(&field) {
                set.push(self.put(column, value));
            }
        }
        self.touched(set)
    }

    /// Tests whether a column has changed that the adopted table shows.
    pub(crate) fn changed(&self) -> String {
        let shown = [
            (Field::Status, "status"),
            (Field::RetryCount, "retry_count"),
            (Field::NextRetryAt, "next_retry_at"),
            (Field::LastError, "last_error"),
            (Field::LockedBy, "locked_by"),
        ];
        let differ: Vec<String> = shown
            .iter()
            .filter(|(field, _)| self.fitted.columns.contains_key(field))
            .map(|(_, name)| self.dialect.differ(&format!("OLD.{name}"), &format!("NEW.{name}")))
            .collect();
        differ.join(" OR ")
    }

    /// Returns the changes that mark the adopted row as delivered.
    pub(crate) fn delivery(&self) -> Assignments {
        let mut set = self.marked(Status::Completed);
        if let Some(column) = self.fitted.columns.get(&Field::Processed) {
            set.push((self.dialect.quoted(&column.name), "TRUE".to_owned()));
        }
        if let Some(column) = self.fitted.columns.get(&Field::DeliveredAt) {
            set.push(self.put(column, D::NOW));
        }
        if let Some(column) = self.fitted.columns.get(&Field::Response) {
            set.push((self.dialect.quoted(&column.name), self.answer(column)));
        }
        self.touched(set)
    }

    /// Returns the destination's answer, complete or not at all: a cut answer may look like another
    /// one.
    fn answer(&self, column: &Column) -> String {
        let mut holds = Vec::new();
        if let Some(bytes) = column.chars_max.or(column.bytes_max) {
            holds.push(format!("OCTET_LENGTH(OLD.response) <= {bytes}"));
        }
        if let Some(charset) = column.charset.as_ref().filter(|charset| *charset != "utf8mb4") {
            holds.push(format!(
                "CONVERT(CONVERT(OLD.response USING {charset}) USING utf8mb4) = OLD.response"
            ));
        }
        let whole = match holds.is_empty() {
            true => "OLD.response".to_owned(),
            false => format!("CASE WHEN {} THEN OLD.response END", holds.join(" AND ")),
        };
        let value = if column.not_null { format!("COALESCE({whole}, '')") } else { whole };
        self.dialect.whole(&value, column)
    }

    /// Returns the changes that mark the adopted row as dead; empty if it has no state column.
    pub(crate) fn death(&self) -> Assignments {
        let mut set = self.marked(Status::DeadLetter);
        if set.is_empty() {
            return set;
        }
        for (field, value) in
            [(Field::LastError, "NEW.error_message"), (Field::RetryCount, "NEW.retry_count")]
        {
            if let Some(column) = self.fitted.columns.get(&field) {
                set.push(self.put(column, value));
            }
        }
        self.touched(set)
    }

    /// Returns the changes that make an adopted row pending again that was marked as dead.
    pub(crate) fn return_to_pending(&self) -> Assignments {
        let mut set = self.marked(Status::Pending);
        if set.is_empty() {
            return set;
        }
        for (field, value) in [(Field::RetryCount, "0"), (Field::NextRetryAt, "NULL")] {
            if let Some(column) = self.fitted.columns.get(&field) {
                set.push(self.put(column, value));
            }
        }
        self.touched(set)
    }

    /// Returns the adopted table's word for a state.
    pub(crate) fn word(&self, state: Status) -> &str {
        let words = &self.fitted.adoption.states;
        match state {
            Status::Pending => &words.pending,
            Status::Processing => &words.processing,
            Status::Failed => &words.failed,
            Status::Completed => &words.completed,
            Status::DeadLetter => &words.dead_letter,
        }
    }

    /// Returns a time of a row in the outbox's representation.
    pub(crate) fn time(&self, row: &str, column: &Column) -> String {
        self.dialect.as_utc(&self.of(row, column), column)
    }

    pub(super) fn of(&self, row: &str, column: &Column) -> String {
        format!("{row}{}", self.dialect.quoted(&column.name))
    }

    /// Returns a field that every event has, from its column or its constant.
    fn required(&self, row: &str, field: Field) -> String {
        let constant = self.fitted.adoption.constants.get(&field);
        let constant = format!("'{}'", constant.map_or("", String::as_str));
        let Some(column) = self.fitted.columns.get(&field) else { return constant };
        let value = self.dialect.as_text(&self.of(row, column), column);
        if column.not_null { value } else { format!("COALESCE({value}, {constant})") }
    }

    /// Returns the changes that set the state and clear the lock columns.
    fn marked(&self, state: Status) -> Assignments {
        let Some(column) = self.fitted.columns.get(&Field::Status) else { return Vec::new() };
        let mut set = vec![self.put(column, &format!("'{}'", self.word(state)))];
        for field in [Field::LockedBy, Field::LockedAt] {
            if let Some(column) = self.fitted.columns.get(&field) {
                set.push(self.put(column, "NULL"));
            }
        }
        set
    }

    /// Adds the change time and version to a non-empty list of changes.
    fn touched(&self, mut set: Assignments) -> Assignments {
        if set.is_empty() {
            return set;
        }
        if let Some(column) = self.fitted.columns.get(&Field::UpdatedAt) {
            set.push(self.put(column, D::NOW));
        }
        if let Some(column) = self.fitted.columns.get(&Field::Version) {
            let name = self.dialect.quoted(&column.name);
            set.push((name.clone(), format!("COALESCE({name}, 0) + 1")));
        }
        set
    }

    /// Prepares a value for a column of the adopted tables: cut to its length, in its time zone,
    /// and never NULL if the column is NOT NULL.
    pub(super) fn put(&self, column: &Column, value: &str) -> (String, String) {
        let d = &self.dialect;
        let fallback = match &column.kind {
            Kind::LocalTime | Kind::Instant => d.as_local(D::NOW, column),
            Kind::Integer => "0".to_owned(),
            Kind::Boolean => "FALSE".to_owned(),
            Kind::Json => "'{}'".to_owned(),
            Kind::Uuid => format!("'{}'", uuid::Uuid::nil()),
            Kind::Words(words) => {
                format!("'{}'", words.first().map_or("", String::as_str).replace('\'', "''"))
            }
            Kind::Text | Kind::Other => "''".to_owned(),
        };
        let value = match column.kind {
            Kind::LocalTime | Kind::Instant => d.as_local(value, column),
            _ => d.cut(value, column),
        };
        // Last, when both values have the column's own type: PostgreSQL refuses to choose between
        // other types.
        let value = match column.not_null {
            true => format!("COALESCE({value}, {fallback})"),
            false => value,
        };
        (d.quoted(&column.name), value)
    }
}
