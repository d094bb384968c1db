//! The name of an outbox and its table.

use sqlx::AssertSqlSafe;

/// The reason why a name from the configuration cannot name an outbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` cannot be the name of an outbox or its table: use 1 to {max} characters, \
     lower-case letters, digits and _, not starting with a digit",
    max = Outbox::NAME_CHARS_MAX
)]
#[non_exhaustive]
pub struct InvalidOutbox {
    /// The refused name.
    pub name: String,
}

/// An outbox: `name` in configuration, metrics and commands, `table` in the database.
///
/// Both are validated here, which makes them safe to put into SQL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outbox {
    name: String,
    table: String,
}

impl Outbox {
    /// Leaves room for the suffixes of derived names within PostgreSQL's limit of 63 bytes.
    pub const NAME_CHARS_MAX: usize = 40;

    /// Creates the outbox `name` with the table `<name>_outbox`.
    ///
    /// # Errors
    /// If the name is not a plain identifier.
    pub fn new(name: &str) -> Result<Self, InvalidOutbox> {
        Self::with_table(name, &format!("{name}_outbox")).map_err(|error| InvalidOutbox {
            name: if plain(name) { error.name } else { name.to_owned() },
        })
    }

    /// Creates the outbox `name` with a table name of its own.
    ///
    /// # Errors
    /// If one of the names is not a plain identifier.
    pub fn with_table(name: &str, table: &str) -> Result<Self, InvalidOutbox> {
        for candidate in [name, table] {
            if !plain(candidate) {
                return Err(InvalidOutbox { name: candidate.to_owned() });
            }
        }
        Ok(Self { name: name.to_owned(), table: table.to_owned() })
    }

    /// Returns the name in configuration, metrics and commands.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the table that programs insert into.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Puts the table name into a statement. `{outbox}` is the only marker in statements; the name
    /// was validated on construction, so the result is as safe as the template.
    #[doc(hidden)]
    pub fn sql(&self, template: &'static str) -> AssertSqlSafe<String> {
        AssertSqlSafe(template.replace("{outbox}", &self.table))
    }

    /// Like [`Outbox::sql`], for a statement that copies to another outbox, `{child}`.
    #[doc(hidden)]
    pub fn sql_to(&self, child: &Self, template: &'static str) -> AssertSqlSafe<String> {
        let AssertSqlSafe(sql) = self.sql(template);
        AssertSqlSafe(sql.replace("{child}", &child.table))
    }
}

fn plain(name: &str) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    first
        && name.len() <= Outbox::NAME_CHARS_MAX
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_plain_identifiers_are_refused_by_name() {
        for name in ["", "a\"b", "a'b", "a b", "a;drop", "1a", "Ä", "A", &"x".repeat(41)] {
            let error = Outbox::with_table("ok", name).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            assert!(Outbox::new(name).is_err());
        }
        assert_eq!(
            Outbox::new("transfers").map(|o| o.table().to_owned()).as_deref(),
            Ok("transfers_outbox")
        );
    }
}
