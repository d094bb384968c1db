//! The statements inside of the triggers, and those of the import. Both databases understand them.

use super::Field;
use super::clauses::{Assignments, Clauses, Dialect};
use crate::Status;

/// The triggers that keep an adopted table and its outbox in step, by the suffix of their names.
pub(crate) mod trigger {
    /// After an insert into the adopted table.
    pub(crate) const APPEND: &str = "adopt_append";
    /// After a live event changes.
    pub(crate) const STATE: &str = "adopt_state";
    /// After an event leaves the outbox.
    pub(crate) const GONE: &str = "adopt_gone";
    /// After a new dead letter is inserted.
    pub(crate) const DEAD: &str = "adopt_dead";
    /// After a dead letter is resolved or reopened.
    pub(crate) const RESOLVED: &str = "adopt_resolved";
    /// All triggers.
    pub(crate) const ALL: [&str; 5] = [APPEND, STATE, GONE, DEAD, RESOLVED];
}

impl<D: Dialect> Clauses<'_, D> {
    /// Fills in the markers of a template. Every piece was validated or generated here.
    pub(crate) fn fill(&self, template: &str, pieces: &[(&str, String)]) -> String {
        let mut sql = template.replace("{outbox}", self.outbox.table());
        for (marker, piece) in pieces {
            sql = sql.replace(&format!("{{{marker}}}"), piece);
        }
        sql
    }

    /// Updates the row with the state of an event; `None` if the row has no columns for it.
    pub(crate) fn show_state(&self) -> Option<String> {
        self.update(&self.state(), "NEW.event_id", "")
    }

    /// Marks the row of a delivered event as delivered, or deletes it.
    pub(crate) fn show_delivery(&self) -> String {
        let marked = self.fitted.adoption.marks();
        let update = marked.then(|| self.update(&self.delivery(), "OLD.event_id", "")).flatten();
        update.unwrap_or_else(|| self.delete("OLD.event_id", ""))
    }

    /// Copies a dead letter, and marks or deletes its row.
    pub(crate) fn show_death(&self) -> String {
        let update = self.update(&self.death(), "NEW.event_id", "");
        let marked = update.unwrap_or_else(|| self.delete("NEW.event_id", ""));
        let Some(letters) = &self.fitted.adoption.dead_letters else { return marked };
        let (columns, values) = columns_and_values(&self.letter());
        let table = self.dialect.quoted(&letters.table);
        format!("INSERT INTO {table} ({columns})\n    VALUES ({values});\n    {marked}")
    }

    /// Shows that a dead letter was resolved or reopened. If it was retried unchanged, its row is
    /// pending again; an edited copy is another event, which the adopted table does not know. If
    /// the table has no state, the row of an imported dead letter that looks due is deleted, like
    /// others at their death: otherwise a later import could not tell that it is not due.
    pub(crate) fn show_resolution(&self) -> String {
        let mut statements = Vec::new();
        let (resolution, reopening) = (self.resolution(), self.reopening());
        let letters = self.fitted.adoption.dead_letters.as_ref();
        if let Some(letters) = letters.filter(|_| !resolution.is_empty()) {
            statements.push(format!(
                "UPDATE {} SET {}\n    WHERE {} = {} AND {};",
                self.dialect.quoted(&letters.table),
                set_list(&resolution),
                self.original(),
                self.original_of("NEW.event_id"),
                self.unresolved("")
            ));
        }
        let sent_again = format!(
            "EXISTS (SELECT 1 FROM {} AS again\n        WHERE again.id = NEW.retried_as AND \
             again.event_id = NEW.event_id)",
            self.dialect.quoted(self.outbox.table()),
        );
        statements.extend(match self.fitted.adoption.columns.get(&Field::Status) {
            Some(status) => {
                let (status, dead) = (self.dialect.quoted(status), self.word(Status::DeadLetter));
                let waits = format!(" AND {status} = '{dead}'\n      AND {sent_again}");
                self.update(&self.return_to_pending(), "NEW.event_id", &waits)
            }
            None => {
                let looks_due = self.due("", &[]);
                let over = format!(" AND {looks_due}\n      AND NOT {sent_again}");
                Some(self.delete("NEW.event_id", &over))
            }
        });
        let mut show =
            format!("IF NEW.resolved THEN\n    {}\n    END IF;", statements.join("\n    "));
        if let Some(letters) = letters.filter(|_| !reopening.is_empty()) {
            // Only the last one: earlier ones were retried, which cannot be undone.
            let (table, id) = (self.dialect.quoted(&letters.table), self.letter_id());
            let last = format!(
                "(SELECT MAX(l.{id}) FROM {table} AS l WHERE l.{} = {})",
                self.original(),
                self.original_of("NEW.event_id")
            );
            show.push_str(&format!(
                "\n    IF NOT NEW.resolved THEN\n    UPDATE {table} SET {}\n    \
                 WHERE {id} = {last};\n    END IF;",
                set_list(&reopening),
                last = self.dialect.of_the_same_table(&last),
            ));
        }
        show
    }

    /// Excludes rows whose request id is known: their event was in the outbox, and left it.
    pub(crate) fn without_repeats(&self, row: &str) -> String {
        let Some(column) = self.fitted.columns.get(&Field::RequestId) else { return String::new() };
        format!(
            "\n  AND NOT EXISTS (SELECT 1 FROM {} AS k WHERE k.request_id = {})",
            self.dialect.quoted(&format!("{}_keys", self.outbox.table())),
            self.dialect.as_key(&self.dialect.as_text(&self.of(row, column), column))
        )
    }

    fn update(&self, set: &Assignments, event_id: &str, condition: &str) -> Option<String> {
        (!set.is_empty()).then(|| {
            format!(
                "UPDATE {} SET {}\n    WHERE {} = {}{condition};",
                self.dialect.quoted(&self.fitted.adoption.table),
                set_list(set),
                self.id(),
                self.row_of(event_id)
            )
        })
    }

    fn delete(&self, event_id: &str, condition: &str) -> String {
        let table = self.dialect.quoted(&self.fitted.adoption.table);
        format!("DELETE FROM {table} WHERE {} = {}{condition};", self.id(), self.row_of(event_id))
    }
}

/// Formats `a = x, b = y`.
fn set_list(set: &Assignments) -> String {
    set.iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect::<Vec<_>>()
        .join(",\n        ")
}

/// Formats `a, b` and `x, y`.
pub(crate) fn columns_and_values(row: &Assignments) -> (String, String) {
    let (names, values): (Vec<&str>, Vec<&str>) =
        row.iter().map(|(name, value)| (name.as_str(), value.as_str())).unzip();
    (names.join(", "), values.join(",\n        "))
}
