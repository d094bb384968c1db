//! Like `clauses`, for the dead-letter table of an adopted table.

use postrider::limits::{ERROR_DETAIL_CHARS_MAX, ERROR_MESSAGE_CHARS_MAX};

use super::clauses::{Assignments, Clauses, Dialect};
use super::fitting::COPIED;
use super::{Column, Field, Kind, LetterField};
use crate::Status;

impl<D: Dialect> Clauses<'_, D> {
    /// Returns the columns of the adopted dead-letter table that are filled from a dead letter
    /// (`NEW.`).
    pub(crate) fn letter(&self) -> Assignments {
        let values = [
            (LetterField::AggregateType, "NEW.aggregate_type"),
            (LetterField::AggregateId, "NEW.aggregate_id"),
            (LetterField::EventType, "NEW.event_type"),
            (LetterField::Payload, "NEW.payload"),
            (LetterField::Headers, "NEW.headers"),
            (LetterField::RequestId, "NEW.request_id"),
            (LetterField::ErrorMessage, "NEW.error_message"),
            (LetterField::Reason, "NEW.reason"),
            (LetterField::ErrorDetail, "NEW.error_detail"),
            (LetterField::RetryCount, "NEW.retry_count"),
            (LetterField::FailedAt, "NEW.failed_at"),
            (LetterField::Resolved, "FALSE"),
            (LetterField::CreatedAt, D::NOW),
            (LetterField::UpdatedAt, D::NOW),
            (LetterField::ResolvedAt, "NULL"),
            (LetterField::ResolvedBy, "NULL"),
            (LetterField::ResolutionNote, "NULL"),
        ];
        let mut letter = vec![(self.original(), self.original_of("NEW.event_id"))];
        for (field, value) in values {
            // Two fields may share a column: the key and the request id, or the times.
            let column = self.fitted.letters.get(&field);
            let is_copy = COPIED.iter().any(|(copied, _)| *copied == field);
            let put = column.map(|column| match column.kind {
                Kind::Text if field == LetterField::Payload => {
                    (self.dialect.quoted(&column.name), self.dialect.whole(value, column))
                }
                // A NULL in the row became an empty text in the event.
                ref kind if is_copy && *kind != Kind::Text => {
                    self.put(column, &format!("NULLIF({value}, '')"))
                }
                _ => self.put(column, value),
            });
            letter.extend(put.filter(|(name, _)| !letter.iter().any(|(known, _)| known == name)));
        }
        letter
    }

    /// Returns the changes that mark a dead letter (`NEW.`) as resolved in the adopted dead-letter
    /// table.
    pub(crate) fn resolution(&self) -> Assignments {
        self.resolved("TRUE", ["NEW.resolved_at", "NEW.resolved_by", "NEW.resolution_note"])
    }

    /// Returns the changes that mark it as unresolved again.
    pub(crate) fn reopening(&self) -> Assignments {
        self.resolved("FALSE", ["NULL", "NULL", "NULL"])
    }

    fn resolved(&self, resolved: &str, [at, by, note]: [&str; 3]) -> Assignments {
        let Some(flag) = self.fitted.letters.get(&LetterField::Resolved) else {
            return Vec::new();
        };
        let mut set = vec![(self.dialect.quoted(&flag.name), resolved.to_owned())];
        for (field, value) in [
            (LetterField::ResolvedAt, at),
            (LetterField::ResolvedBy, by),
            (LetterField::ResolutionNote, note),
            (LetterField::UpdatedAt, D::NOW),
        ] {
            let put = self.fitted.letters.get(&field).map(|column| self.put(column, value));
            set.extend(put.filter(|(name, _)| !set.iter().any(|(known, _)| known == name)));
        }
        set
    }

    /// Returns the columns of a dead letter that are filled from a row of the adopted dead-letter
    /// table. Its `original_id` is the negated id of that row, which no event of the outbox has
    /// had.
    pub(crate) fn imported_letter(&self, row: &str) -> Assignments {
        let d = &self.dialect;
        let own = |field: LetterField| self.fitted.letters.get(&field);
        let text = |field: LetterField, fallback: &str| match own(field) {
            Some(column) => {
                format!("COALESCE({}, {fallback})", d.as_text(&self.of(row, column), column))
            }
            None => fallback.to_owned(),
        };
        let constant = |field: Field| {
            let value = self.fitted.adoption.constants.get(&field);
            format!("'{}'", value.map_or("", String::as_str))
        };
        let message = text(LetterField::ErrorMessage, "''");
        let mut letter = vec![
            ("original_id".to_owned(), format!("-{row}{}", self.letter_id())),
            ("event_id".to_owned(), self.letter_identity(row)),
            (
                "aggregate_type".to_owned(),
                text(LetterField::AggregateType, &constant(Field::AggregateType)),
            ),
            (
                "aggregate_id".to_owned(),
                text(LetterField::AggregateId, &constant(Field::AggregateId)),
            ),
            ("event_type".to_owned(), text(LetterField::EventType, &constant(Field::EventType))),
            ("payload".to_owned(), text(LetterField::Payload, "''")),
            ("reason".to_owned(), "'exhausted'".to_owned()),
            ("error_message".to_owned(), format!("LEFT({message}, {ERROR_MESSAGE_CHARS_MAX})")),
            ("redrive_count".to_owned(), "0".to_owned()),
        ];
        if let Some(column) = own(LetterField::RequestId) {
            letter.push(("request_id".to_owned(), d.as_text(&self.of(row, column), column)));
        }
        if let Some(column) = self.fitted.columns.get(&Field::ContentHash) {
            // The hash of the row that was given up: a retry verifies it.
            let hash = format!(
                "(SELECT {} FROM {} AS a WHERE a.{} = {})",
                d.as_text(&self.of("a.", column), column),
                d.quoted(&self.fitted.adoption.table),
                self.id(),
                self.row_of_letter(row)
            );
            letter.push(("content_hash".to_owned(), hash));
        }
        if let Some(column) = own(LetterField::Headers) {
            let stored = d.as_text(&self.of(row, column), column);
            letter.push(("headers".to_owned(), d.as_headers(&stored, self.outbox)));
        }
        if let Some(column) = own(LetterField::ErrorDetail) {
            let detail = d.as_text(&self.of(row, column), column);
            letter.push((
                "error_detail".to_owned(),
                format!("LEFT({detail}, {ERROR_DETAIL_CHARS_MAX})"),
            ));
        }
        let count = own(LetterField::RetryCount).map(|column| self.of(row, column));
        let count = count.map_or_else(|| "0".to_owned(), |count| format!("COALESCE({count}, 0)"));
        letter.push(("retry_count".to_owned(), count));
        let created = own(LetterField::CreatedAt);
        let time = |column: Option<&Column>| match column {
            Some(column) => {
                format!("COALESCE({}, {})", self.time(row, column), D::NOW)
            }
            None => D::NOW.to_owned(),
        };
        letter.push(("failed_at".to_owned(), time(own(LetterField::FailedAt).or(created))));
        letter.push(("event_created_at".to_owned(), time(created)));
        letter
    }

    /// Tests whether a row of the adopted dead-letter table is unresolved.
    pub(crate) fn unresolved(&self, row: &str) -> String {
        match self.fitted.letters.get(&LetterField::Resolved) {
            Some(column) => self.dialect.unset(&self.of(row, column)),
            None => "TRUE".to_owned(),
        }
    }

    /// Returns the primary key of the adopted dead-letter table.
    pub(crate) fn letter_id(&self) -> String {
        self.dialect.quoted(&self.fitted.letters[&LetterField::Id].name)
    }

    /// Returns the event id of a row of the adopted dead-letter table.
    pub(crate) fn letter_identity(&self, row: &str) -> String {
        self.identity(&self.of(row, &self.fitted.letters[&LetterField::OriginalId]))
    }

    /// Returns the column of the adopted dead-letter table that refers to the adopted table.
    pub(crate) fn original(&self) -> String {
        self.dialect.quoted(&self.fitted.letters[&LetterField::OriginalId].name)
    }

    /// Returns the row id of `event_id`, in the type of that column.
    pub(crate) fn original_of(&self, event_id: &str) -> String {
        self.id_for(event_id, &self.fitted.letters[&LetterField::OriginalId])
    }

    /// Returns the row id that a dead letter refers to, in the type of the adopted table.
    fn row_of_letter(&self, letter: &str) -> String {
        let original = self.of(letter, &self.fitted.letters[&LetterField::OriginalId]);
        match self.fitted.has_uuid() {
            true => self.dialect.uuid_of(&original, &self.fitted.columns[&Field::Id]),
            false => original,
        }
    }

    /// Excludes rows that were given up, if only their unresolved dead letter shows it: they are
    /// imported as that dead letter.
    pub(crate) fn without_given_up(&self, row: &str) -> String {
        let Some(letters) = &self.fitted.adoption.dead_letters else { return String::new() };
        if self.fitted.columns.contains_key(&Field::Status) {
            return String::new();
        }
        let own = format!("{row}{}", self.id());
        let original = match self.fitted.has_uuid() {
            true => self.dialect.uuid_of(&own, &self.fitted.letters[&LetterField::OriginalId]),
            false => own,
        };
        format!(
            "\n  AND NOT EXISTS (SELECT 1 FROM {} AS l WHERE l.{} = {original} AND {})",
            self.dialect.quoted(&letters.table),
            self.original(),
            self.unresolved("l.")
        )
    }

    /// Excludes dead letters of rows that are no longer given up: they were retried, and a
    /// dead-letter table without `resolved` does not show it.
    pub(crate) fn without_living(&self, row: &str) -> String {
        let Some(status) = self.fitted.columns.get(&Field::Status) else { return String::new() };
        format!(
            "\n  AND NOT EXISTS (SELECT 1 FROM {} AS a WHERE a.{} = {} AND {} <> '{}')",
            self.dialect.quoted(&self.fitted.adoption.table),
            self.id(),
            self.row_of_letter(row),
            self.dialect.as_text(&self.of("a.", status), status),
            self.word(Status::DeadLetter)
        )
    }
}
