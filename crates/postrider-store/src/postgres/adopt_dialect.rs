//! The SQL dialect of PostgreSQL for adoptions.

use postrider::Outbox;

use crate::adopt::{Column, Dialect, Kind, is_offset};

pub(super) struct Postgres {
    /// Time zone of the adopted table, as an operand of AT TIME ZONE.
    zone: String,
}

impl Postgres {
    /// Values below every id: an integer, a UUID.
    pub(super) const FIRST: [&'static str; 2] =
        ["-9223372036854775808", "00000000-0000-0000-0000-000000000000"];

    pub(super) fn new(time_zone: &str) -> Self {
        // As text, an offset would have the sign of POSIX: west is positive.
        let zone = match is_offset(time_zone) {
            true => format!("INTERVAL '{time_zone}'"),
            false => format!("'{time_zone}'"),
        };
        Self { zone }
    }
}

impl Dialect for Postgres {
    const NOW: &'static str = "now()";

    fn quoted(&self, name: &str) -> String {
        format!("\"{name}\"")
    }

    fn as_text(&self, value: &str, _column: &Column) -> String {
        format!("{value}::text")
    }

    fn as_headers(&self, value: &str, outbox: &Outbox) -> String {
        format!("\"{}_adopt_headers\"({value})", outbox.table())
    }

    fn as_utc(&self, value: &str, column: &Column) -> String {
        match column.kind {
            Kind::LocalTime => format!("({value} AT TIME ZONE {})", self.zone),
            _ => value.to_owned(),
        }
    }

    fn as_local(&self, value: &str, column: &Column) -> String {
        match column.kind {
            Kind::LocalTime => format!("({value})::timestamptz AT TIME ZONE {}", self.zone),
            _ => format!("({value})::timestamptz"),
        }
    }

    fn as_key(&self, value: &str) -> String {
        value.to_owned()
    }

    /// An explicit cast cuts the value.
    fn cut(&self, value: &str, column: &Column) -> String {
        match column.kind {
            Kind::Words(_) => format!("({value})::text::{}", column.type_name),
            _ => format!("({value})::{}", column.type_name),
        }
    }

    fn whole(&self, value: &str, column: &Column) -> String {
        self.cut(value, column)
    }

    fn unset(&self, value: &str) -> String {
        format!("NOT COALESCE({value}, FALSE)")
    }

    fn identity(&self, id: &str, prefix: &str) -> String {
        let digits = format!("lpad(to_hex({id}::bigint), 18, '0')");
        format!(
            "('{prefix}-8' || substr({digits}, 1, 3) || '-8' || substr({digits}, 4, 3) || '-' || \
             substr({digits}, 7))::uuid"
        )
    }

    fn id_of(&self, identity: &str) -> String {
        let text = format!("{identity}::text");
        format!(
            "('x' || substr({text}, 18, 1) || substr({text}, 21, 3) || \
             substr({text}, 25))::bit(64)::bigint"
        )
    }

    fn uuid_identity(&self, id: &str) -> String {
        format!("{id}::uuid")
    }

    fn uuid_of(&self, identity: &str, column: &Column) -> String {
        format!("{identity}::{}", column.type_name)
    }

    fn differ(&self, one: &str, other: &str) -> String {
        format!("{one} IS DISTINCT FROM {other}")
    }
}
