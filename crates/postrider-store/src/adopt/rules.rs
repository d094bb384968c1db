//! Rules of a table beyond its columns: engine, checks, unique indexes and foreign keys. A rule
//! that would fail later in an event's life is refused at adoption, because a settle that fails
//! holds up its event.

use super::{Field, Fitted, LetterField};
use crate::StoreError;
use crate::contract::Result;

/// A unique index or a foreign key.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
}

/// The rules found on one table.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// The engine, if it has no transactions.
    pub(crate) without_transactions: Option<String>,
    pub(crate) unique: Vec<Rule>,
    pub(crate) foreign: Vec<Rule>,
}

impl Fitted<'_> {
    /// Refuses rules that cannot be satisfied.
    pub(crate) fn check_rules(&self, table: &Rules, letters: &Rules) -> Result<()> {
        let letters_table = self.adoption.dead_letters.as_ref().map(|letters| &letters.table);
        let tables = [(Some(&self.adoption.table), table), (letters_table, letters)];
        for (name, rules) in tables {
            if let (Some(name), Some(engine)) = (name, &rules.without_transactions) {
                return refuse(format!(
                    "table `{name}` has the engine {engine}, which has no transactions: a row \
                     could be there without its event; run ALTER TABLE `{name}` ENGINE = InnoDB"
                ));
            }
        }
        let Some(name) = letters_table else { return Ok(()) };
        let own_id = &self.letters[&LetterField::Id].name;
        if let Some(index) = letters.unique.iter().find(|rule| !rule.columns.contains(own_id)) {
            return refuse(format!(
                "table `{name}`: the unique index `{}` ({}) would refuse a second dead letter of \
                 an event that was sent again; drop it, or leave [outbox.adopt.dead_letters] out",
                index.name,
                index.columns.join(", ")
            ));
        }
        if let Some(key) = letters.foreign.first() {
            return refuse(format!(
                "table `{name}`: the foreign key `{}` ({}) would refuse dead letters, or that a \
                 delivered row is deleted; drop it, or leave [outbox.adopt.dead_letters] out",
                key.name,
                key.columns.join(", ")
            ));
        }
        Ok(())
    }

    /// Returns the name and type of the status column, if there is one.
    pub(crate) fn status_column(&self) -> Option<(&str, &str)> {
        let status = self.columns.get(&Field::Status)?;
        Some((&status.name, &status.type_name))
    }

    /// Returns the words that the status column will hold, each with its key in the configuration.
    pub(crate) fn status_words(&self) -> Vec<(&'static str, &str)> {
        self.adoption.states.each().to_vec()
    }

    /// Returns the error for a check that does not allow a word in the status column.
    pub(crate) fn refuse_check(&self, check: &str, state: &str, word: &str) -> StoreError {
        StoreError::Schema(format!(
            "table `{}`: the check `{check}` does not allow \"{word}\" in the column of the \
             status; let it, or set states.{state} to a word that it allows",
            self.adoption.table
        ))
    }
}

fn refuse<T>(message: String) -> Result<T> {
    Err(StoreError::Schema(message))
}
