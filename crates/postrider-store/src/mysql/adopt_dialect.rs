//! The SQL dialect of MariaDB and MySQL for adoptions.

use postrider::Outbox;

use crate::adopt::{Column, Dialect, Kind, is_offset};

pub(super) struct Mysql {
    /// Offset of the adopted table's time zone.
    zone: String,
}

impl Mysql {
    /// Values below every id: an integer, a UUID.
    pub(super) const FIRST: [&'static str; 2] =
        ["-9223372036854775808", "00000000-0000-0000-0000-000000000000"];

    pub(super) fn new(time_zone: &str) -> Self {
        Self { zone: if is_offset(time_zone) { time_zone } else { "+00:00" }.to_owned() }
    }

    /// Returns the time zone of a column. A TIMESTAMP is read and written in the session's time
    /// zone.
    fn zone(&self, column: &Column) -> String {
        match column.kind {
            Kind::Instant => "@@session.time_zone".to_owned(),
            _ => format!("'{}'", self.zone),
        }
    }
}

impl Dialect for Mysql {
    const NOW: &'static str = "UTC_TIMESTAMP(6)";

    fn quoted(&self, name: &str) -> String {
        format!("`{name}`")
    }

    fn as_text(&self, value: &str, column: &Column) -> String {
        match column.kind {
            Kind::Integer | Kind::Uuid | Kind::Words(_) => format!("CAST({value} AS CHAR)"),
            // Converted first: comparing it with a text that its own character set lacks would be
            // an error.
            _ if column.charset.as_deref().is_some_and(|charset| charset != "utf8mb4") => {
                format!("CONVERT({value} USING utf8mb4)")
            }
            _ => value.to_owned(),
        }
    }

    fn as_headers(&self, value: &str, _outbox: &Outbox) -> String {
        // Nested, because JSON_TYPE fails on text that is not JSON.
        format!(
            "IF({value} IS NULL OR TRIM({value}) IN ('', 'null'), NULL, IF(JSON_VALID({value}), \
             IF(JSON_TYPE({value}) = 'OBJECT', {value}, JSON_OBJECT('headers', {value})), \
             JSON_OBJECT('headers', {value})))"
        )
    }

    fn as_utc(&self, value: &str, column: &Column) -> String {
        format!("CONVERT_TZ({value}, {}, '+00:00')", self.zone(column))
    }

    fn as_local(&self, value: &str, column: &Column) -> String {
        format!("CONVERT_TZ({value}, '+00:00', {})", self.zone(column))
    }

    fn as_key(&self, value: &str) -> String {
        format!(
            "CONVERT({value} USING utf8mb4) \
             COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */"
        )
    }

    fn cut(&self, value: &str, column: &Column) -> String {
        match column.safe_chars_max().filter(|_| column.kind == Kind::Text) {
            Some(chars) => format!("LEFT({value}, {chars})"),
            None => value.to_owned(),
        }
    }

    fn whole(&self, value: &str, _column: &Column) -> String {
        value.to_owned()
    }

    fn unset(&self, value: &str) -> String {
        format!("COALESCE({value}, 0) = 0")
    }

    fn identity(&self, id: &str, prefix: &str) -> String {
        let digits = format!("LPAD(LOWER(HEX({id})), 18, '0')");
        ascii(&format!(
            "CONCAT('{prefix}-8', SUBSTR({digits}, 1, 3), '-8', SUBSTR({digits}, 4, 3), '-', \
             SUBSTR({digits}, 7))"
        ))
    }

    fn id_of(&self, identity: &str) -> String {
        format!(
            "CAST(CONV(CONCAT(SUBSTR({identity}, 18, 1), SUBSTR({identity}, 21, 3), \
             SUBSTR({identity}, 25)), 16, -10) AS SIGNED)"
        )
    }

    fn uuid_identity(&self, id: &str) -> String {
        ascii(&format!("LOWER(CAST({id} AS CHAR(36)))"))
    }

    fn uuid_of(&self, identity: &str, _column: &Column) -> String {
        // ASCII is compared with a column of any character set by the column's own collation.
        format!("CONVERT({identity} USING ascii)")
    }

    fn differ(&self, one: &str, other: &str) -> String {
        format!("NOT {one} <=> {other}")
    }

    /// MySQL reads it into a temporary table first (error 1093).
    fn of_the_same_table(&self, subquery: &str) -> String {
        format!("/*!80000 (SELECT * FROM */{subquery}/*!80000 AS found) */")
    }
}

/// Converts to the type of `event_id`, so that its index is used for a comparison.
fn ascii(value: &str) -> String {
    format!("CONVERT({value} USING ascii) COLLATE ascii_bin")
}
