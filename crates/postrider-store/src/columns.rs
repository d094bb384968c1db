//! The columns of an event, listed once. Statements name them with markers, which are filled in
//! while the program is compiled, and a row is read in the same order.
//!
//! `{message}` stands for what the application wrote and every copy has; `{event}` for what a relay
//! reads of a row; `{letter}` for a dead letter without its payload. `{o.event}` names the columns
//! in the table `o`; `{message but headers}` leaves one out. `{next version}` is computed.

use chrono::{DateTime, Utc};

use crate::Event;

/// The message. `@` stands for the table.
const MESSAGE: [&str; 8] = [
    "@event_id",
    "@request_id",
    "@aggregate_type",
    "@aggregate_id",
    "@event_type",
    "@payload",
    "@headers",
    "@content_hash",
];

/// What a relay reads after the id and the message.
const STATE: [&str; 8] = [
    "@created_at",
    "@expires_at",
    "@retry_count",
    "@max_retries",
    "@redrive_count",
    "@crash_count",
    "CASE WHEN @last_error IS NOT NULL THEN @updated_at END AS last_failed_at",
    "@version",
];

/// What a dead letter has besides its ids and the message.
const LETTER: [&str; 18] = [
    "@reason",
    "@error_message",
    "@error_detail",
    "@fingerprint",
    "@failed_at",
    "@retry_count",
    "@max_retries",
    "@redrive_count",
    "@event_created_at",
    "@expires_at",
    "@resolved",
    "@resolved_at",
    "@resolved_by",
    "@resolution_note",
    "@retried_as",
    "@created_at",
    "@updated_at",
    "octet_length(@payload) AS payload_bytes",
];

/// The version after a change. It starts again at 2^53, because JSON holds larger numbers
/// inexactly; it is bounded before the addition too, so that no value that somebody wrote fails the
/// statement.
const NEXT_VERSION: [&str; 1] = ["((@version & 9007199254740991) + 1) & 9007199254740991"];

/// The position of the first column that is not part of an event: before it are `{event}` and the
/// time at which the row was claimed or read.
pub(crate) const AFTER_EVENT: usize = 1 + MESSAGE.len() + STATE.len() + 1;

pub(crate) type Read<T> = Result<T, sqlx::Error>;

/// A row of one database, read by positions.
pub(crate) trait EventRow {
    /// Reads the identity of an event.
    fn identity(&self, at: usize) -> Read<String>;
    /// Reads a text that is never NULL.
    fn text(&self, at: usize) -> Read<String>;
    /// Reads a text.
    fn text_or_none(&self, at: usize) -> Read<Option<String>>;
    /// Reads JSON as text.
    fn json(&self, at: usize) -> Read<Option<String>>;
    /// Reads a count that is never NULL.
    fn count(&self, at: usize) -> Read<i32>;
    /// Reads a count.
    fn count_or_none(&self, at: usize) -> Read<Option<i32>>;
    /// Reads a long number that is never NULL.
    fn long(&self, at: usize) -> Read<i64>;
    /// Reads a time that is never NULL.
    fn time(&self, at: usize) -> Read<DateTime<Utc>>;
    /// Reads a time.
    fn time_or_none(&self, at: usize) -> Read<Option<DateTime<Utc>>>;
}

/// Reads the columns `{event}` and, after them, the time at which the row was claimed or read.
pub(crate) fn event(row: &impl EventRow) -> Read<Event> {
    let mut at = 0..;
    let mut next = || at.next().unwrap_or_default();
    Ok(Event {
        id: row.long(next())?,
        event_id: row.identity(next())?,
        request_id: row.text_or_none(next())?,
        aggregate_type: row.text(next())?,
        aggregate_id: row.text(next())?,
        event_type: row.text(next())?,
        payload: row.text(next())?,
        headers: row.json(next())?,
        content_hash: row.text_or_none(next())?,
        created_at: row.time(next())?,
        expires_at: row.time_or_none(next())?,
        retry_count: row.count(next())?,
        max_retries: row.count_or_none(next())?,
        redrive_count: row.count(next())?,
        crash_count: row.count(next())?,
        last_failed_at: row.time_or_none(next())?,
        version: row.long(next())?,
        claimed_at: row.time(next())?,
        place: None,
        defect: None,
    })
}

/// Returns the names and positions of the texts in a message.
#[cfg(feature = "sqlite")]
pub(crate) fn texts() -> impl Iterator<Item = (usize, &'static str)> {
    MESSAGE.iter().enumerate().map(|(place, column)| (1 + place, column.trim_start_matches('@')))
}

/// Returns whether a text of the message has a character that stands for bytes that are not UTF-8.
#[cfg(feature = "sqlite")]
pub(crate) fn has_replacement(event: &Event) -> bool {
    let required = [
        &event.event_id,
        &event.aggregate_type,
        &event.aggregate_id,
        &event.event_type,
        &event.payload,
    ];
    let others = [&event.request_id, &event.headers, &event.content_hash].into_iter().flatten();
    required.into_iter().chain(others).any(|text| text.contains(char::REPLACEMENT_CHARACTER))
}

/// Returns a statement of a file beside the calling module, its markers for columns filled in.
macro_rules! sql {
    ($file:literal, $name:literal) => {
        $crate::columns::with_columns!(postrider::internal::statement::cut(
            include_str!($file),
            $name
        ))
    };
}
pub(crate) use sql;

/// Returns a constant text, its markers for columns filled in.
macro_rules! with_columns {
    ($text:expr) => {
        const {
            const LENGTH: usize = $crate::columns::filled::<0>($text).1;
            const FILLED: [u8; LENGTH] = $crate::columns::filled::<LENGTH>($text).0;
            match std::str::from_utf8(&FILLED) {
                Ok(text) => text,
                Err(_) => panic!("half of a character was replaced"),
            }
        }
    };
}
pub(crate) use with_columns;

/// A marker and the columns that it stands for.
struct Marker {
    text: &'static [u8],
    /// What names the table.
    table: &'static [u8],
    columns: &'static [&'static [&'static str]],
    left_out: &'static str,
}

const MARKERS: [Marker; 10] = [
    marker("{message}", "", &[&MESSAGE], ""),
    marker("{o.message}", "o.", &[&MESSAGE], ""),
    marker("{message but payload}", "", &[&MESSAGE], "@payload"),
    marker("{message but headers}", "", &[&MESSAGE], "@headers"),
    marker("{o.message but headers}", "o.", &[&MESSAGE], "@headers"),
    marker("{event}", "", &[&["@id"], &MESSAGE, &STATE], ""),
    marker("{o.event}", "o.", &[&["@id"], &MESSAGE, &STATE], ""),
    marker("{letter}", "", &[&["@id", "@original_id"], &MESSAGE, &LETTER], "@payload"),
    marker("{next version}", "", &[&NEXT_VERSION], ""),
    marker("{o.next version}", "o.", &[&NEXT_VERSION], ""),
];

const fn marker(
    text: &'static str,
    table: &'static str,
    columns: &'static [&'static [&'static str]],
    left_out: &'static str,
) -> Marker {
    Marker { text: text.as_bytes(), table: table.as_bytes(), columns, left_out }
}

/// Returns the first bytes of a statement with its markers for columns filled in, and the length of
/// the whole.
pub(crate) const fn filled<const ROOM: usize>(statement: &str) -> ([u8; ROOM], usize) {
    let from = statement.as_bytes();
    let mut to = Text { bytes: [0; ROOM], length: 0 };
    let mut at = 0;
    'next: while at < from.len() {
        let mut index = 0;
        while from[at] == b'{' && index < MARKERS.len() {
            let marker = &MARKERS[index];
            if starts(from, at, marker.text) {
                to.columns(marker);
                at += marker.text.len();
                continue 'next;
            }
            index += 1;
        }
        assert!(!starts(from, at, b"{message ") && !starts(from, at, b"{o."), "no such marker");
        to.push(from[at]);
        at += 1;
    }
    (to.bytes, to.length)
}

const fn starts(text: &[u8], from: usize, prefix: &[u8]) -> bool {
    let mut at = 0;
    while at < prefix.len() {
        if from + at >= text.len() || text[from + at] != prefix[at] {
            return false;
        }
        at += 1;
    }
    true
}

struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    length: usize,
}

impl<const ROOM: usize> Text<ROOM> {
    const fn columns(&mut self, marker: &Marker) {
        let (mut group, mut is_first) = (0, true);
        while group < marker.columns.len() {
            let mut at = 0;
            while at < marker.columns[group].len() {
                let column = marker.columns[group][at].as_bytes();
                let is_left_out = column.len() == marker.left_out.len()
                    && starts(column, 0, marker.left_out.as_bytes());
                if !is_left_out {
                    self.add(if is_first { b"" } else { b", " }, b"");
                    self.add(column, marker.table);
                    is_first = false;
                }
                at += 1;
            }
            group += 1;
        }
    }

    /// Adds a text, with the table in place of each `@`.
    const fn add(&mut self, text: &[u8], table: &[u8]) {
        let mut at = 0;
        while at < text.len() {
            if text[at] == b'@' {
                self.add(table, b"");
            } else {
                self.push(text[at]);
            }
            at += 1;
        }
    }

    const fn push(&mut self, byte: u8) {
        if self.length < ROOM {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_become_the_columns_of_the_table_they_name() {
        const SQL: &str = "SELECT {o.message}, '{}' FROM {outbox} AS o";
        const LENGTH: usize = filled::<0>(SQL).1;
        const FILLED: [u8; LENGTH] = filled::<LENGTH>(SQL).0;
        assert_eq!(
            std::str::from_utf8(&FILLED).unwrap(),
            "SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, \
             o.payload, o.headers, o.content_hash, '{}' FROM {outbox} AS o"
        );
    }

    #[test]
    fn one_column_may_be_left_out() {
        const SQL: &str = "{o.message but headers}, o.lane";
        const LENGTH: usize = filled::<0>(SQL).1;
        const FILLED: [u8; LENGTH] = filled::<LENGTH>(SQL).0;
        assert_eq!(
            std::str::from_utf8(&FILLED).unwrap(),
            "o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, \
             o.content_hash, o.lane"
        );
    }

    #[test]
    fn the_time_of_the_claim_follows_the_event() {
        const SQL: &str = "{event}";
        const LENGTH: usize = filled::<0>(SQL).1;
        const FILLED: [u8; LENGTH] = filled::<LENGTH>(SQL).0;
        let columns = std::str::from_utf8(&FILLED).unwrap().split(", ").count();
        assert_eq!(columns + 1, AFTER_EVENT);
    }
}
