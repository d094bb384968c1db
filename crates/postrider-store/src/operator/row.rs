//! Rows, read in the same way whatever database they come from.

use chrono::{DateTime, Utc};

use crate::contract::Result;

type Read<T> = std::result::Result<Option<T>, sqlx::Error>;

/// A row of one database, read by the names of its columns. Implementations tolerate what their
/// database lets into a column: one odd row must not fail the read of its neighbours.
pub(crate) trait Columns: Send + Sync {
    /// Reads a text, an identity or JSON, as text.
    fn text(&self, column: &str) -> Read<String>;
    /// Reads bytes.
    fn bytes(&self, column: &str) -> Read<Vec<u8>>;
    /// Reads a whole number of any width.
    fn integer(&self, column: &str) -> Read<i64>;
    /// Reads a truth value.
    fn boolean(&self, column: &str) -> Read<bool>;
    /// Reads a time; see [`crate::contract::time`] for what is none.
    fn time(&self, column: &str) -> Read<DateTime<Utc>>;
}

/// A row. What is read of a column that is never NULL is empty, zero or false where it is NULL all
/// the same.
pub(crate) struct Row(pub(crate) Box<dyn Columns>);

impl Row {
    /// Reads a text that is never NULL.
    pub(crate) fn text(&self, column: &str) -> Result<String> {
        Ok(self.0.text(column)?.unwrap_or_default())
    }

    /// Reads a text.
    pub(crate) fn text_or_none(&self, column: &str) -> Result<Option<String>> {
        Ok(self.0.text(column)?)
    }

    /// Reads bytes that are never NULL.
    pub(crate) fn bytes(&self, column: &str) -> Result<Vec<u8>> {
        Ok(self.0.bytes(column)?.unwrap_or_default())
    }

    /// Reads bytes.
    pub(crate) fn bytes_or_none(&self, column: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.0.bytes(column)?)
    }

    /// Reads a whole number that is never NULL, or the nearest that fits.
    pub(crate) fn number<T: TryFrom<i64> + Default>(&self, column: &str) -> Result<T> {
        Ok(self.number_or_none(column)?.unwrap_or_default())
    }

    /// Reads a whole number, or the nearest that fits.
    pub(crate) fn number_or_none<T: TryFrom<i64> + Default>(
        &self,
        column: &str,
    ) -> Result<Option<T>> {
        Ok(self.0.integer(column)?.map(nearest))
    }

    /// Reads a truth value that is never NULL.
    pub(crate) fn boolean(&self, column: &str) -> Result<bool> {
        Ok(self.0.boolean(column)?.unwrap_or_default())
    }

    /// Reads a time that is never NULL.
    pub(crate) fn time(&self, column: &str) -> Result<DateTime<Utc>> {
        Ok(self.0.time(column)?.unwrap_or_default())
    }

    /// Reads a time.
    pub(crate) fn time_or_none(&self, column: &str) -> Result<Option<DateTime<Utc>>> {
        Ok(self.0.time(column)?)
    }
}

/// Returns the number in the wanted type, which is narrower, never wider.
pub(crate) fn nearest<T: TryFrom<i64> + Default>(number: i64) -> T {
    let narrow = number.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    T::try_from(number).or_else(|_| T::try_from(narrow)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_the_nearest_that_fits() {
        assert_eq!(nearest::<i32>(i64::MAX), i32::MAX);
        assert_eq!(nearest::<i32>(i64::MIN), i32::MIN);
        assert_eq!(nearest::<i64>(i64::MAX), i64::MAX);
    }
}
