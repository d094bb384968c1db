//! The markers of the shared statements, and what stands for them in the SQL of a database.
//!
//! | in a statement | stands for |
//! |---|---|
//! | `"name"` | a name, in the quotes of the database |
//! | `:parameter` | a value: `$1`, or `?` |
//! | `{outbox}`, `{child}` | the outbox's table, and the one that is copied into |
//! | `{filter}` | the conditions of a filter |
//! | `{now}` | the database's clock |
//! | `{ago :ms}`, `{ahead :ms}` | so many milliseconds before and after `{now}` |
//! | `{in_seconds column}` | as many seconds after `{now}` as the column says |
//! | `{ms_since time}`, `{seconds_since time}` | age |
//! | `{hour time}` | hours since 1970 |
//! | `{lock}`, `{lock_free}` | row locks: wait for them, or skip what is locked |
//! | `{primary}`, `{index name}` | a table is read by its primary key, or by this index |
//! | `{unresolved}` | a condition as the indexes of the dead letters have it |
//! | `{replayed}` | whether the headers are those of a replayed event |
//! | `{instr}` | the function that finds a text in another |
//! | `{integer}` | the type of whole numbers in a `CAST` |
//! | `{among :ids}` | the condition that a column is in a list |
//! | `{unless_known columns}` | an insert does nothing when these columns are there already |
//! | `{returning columns}` | an insert answers them, where the database can |
//! | `{::type}` | a cast that only PostgreSQL needs |

use super::statement;

/// The SQL of a database, as far as it differs from the others'.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Statements that replace the shared ones of the same name.
    pub(crate) statements: &'static str,
    /// What names are quoted with.
    pub(crate) quote: char,
    /// Placeholders have numbers, so that a value is sent once.
    pub(crate) numbered: bool,
    /// Returns what stands for a marker, from its name and what follows that in the braces.
    pub(crate) markers: fn(&str, &str) -> Option<String>,
}

impl Dialect {
    /// Returns the database's own statement of this name.
    pub(super) fn own(&self, name: &str) -> Option<&'static str> {
        statement::find(self.statements, name)
    }

    /// Returns what stands for a marker, which is given without its braces.
    pub(super) fn expand(&self, marker: &str) -> Option<String> {
        let (name, argument) = marker.split_once(' ').unwrap_or((marker, ""));
        (self.markers)(name, argument)
    }
}
