//! Checks of tables and server that stay cheap however large the tables are, for the monitor and
//! for `doctor`.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use serde::Serialize;

use super::Result;
use crate::OutboxSpec;

/// A count up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AtLeast {
    /// Number of rows counted.
    pub count: i64,
    /// Whether all rows were counted.
    pub exact: bool,
}

/// Events of one type in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The event type.
    pub event_type: String,
    /// PENDING, PROCESSING, FAILED or DEAD_LETTER.
    pub status: String,
    /// Number of events.
    pub count: i64,
}

/// The composition of an outbox, from a limited number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Composition {
    /// The oldest live events by type and state.
    pub live: Vec<StateCount>,
    /// Whether these are all of them.
    pub live_exact: bool,
    /// The newest unresolved dead letters by type.
    pub dead_letters: Vec<(String, i64)>,
    /// Whether these are all of them.
    pub dead_letters_exact: bool,
}

impl Composition {
    pub(crate) fn new(
        live: Vec<(String, String, i64)>,
        dead_letters: Vec<(String, i64)>,
        rows_max: u32,
    ) -> Self {
        let rows_max = i64::from(rows_max);
        let live: Vec<_> = live
            .into_iter()
            .map(|(event_type, status, count)| StateCount { event_type, status, count })
            .collect();
        Self {
            live_exact: live.iter().map(|state| state.count).sum::<i64>() < rows_max,
            dead_letters_exact: dead_letters.iter().map(|(_, count)| count).sum::<i64>() < rows_max,
            live,
            dead_letters,
        }
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No problem.
    Ok,
    /// It works, but an operator should look at it.
    Warning,
    /// Events are not delivered, or are not safe.
    Error,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub verdict: Verdict,
    /// Subject of the check.
    pub subject: String,
    /// Result of the check.
    pub finding: String,
    /// What the operator can do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Creates a finding without a problem.
    pub fn ok(subject: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject: subject.into(), finding: finding.into(), fix: None }
    }

    /// Creates a finding that an operator should look at.
    pub fn warning(
        subject: impl Into<String>,
        finding: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warning, fix: Some(fix.into()), ..Self::ok(subject, finding) }
    }

    /// Creates a finding of an outbox whose events are not delivered or not safe.
    pub fn error(
        subject: impl Into<String>,
        finding: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Error, ..Self::warning(subject, finding, fix) }
    }
}

/// Checks with bounded cost.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// Counts events in FAILED, among the first `rows_max` events that wait to be due.
    async fn failed_rows(&self, outbox: &Outbox, rows_max: u32) -> Result<AtLeast>;

    /// Counts the oldest `rows_max` live events by type and state, and as many dead letters by
    /// type.
    async fn composition(&self, outbox: &Outbox, rows_max: u32) -> Result<Composition>;

    /// Returns the time on the database's clock.
    async fn clock(&self) -> Result<DateTime<Utc>>;

    /// Checks whether a pooler between this program and the database shares a session among clients
    /// between two transactions. Called first, because other calls may fail behind one.
    async fn find_pooler(&self) -> Result<Finding>;

    /// Finds other obstacles: an old server, settings that lose commits, missing indexes, triggers
    /// and grants, and anything that has held back vacuum or purge for longer than `long`.
    async fn diagnose(&self, outboxes: &[OutboxSpec], long: Duration) -> Result<Vec<Finding>>;
}

/// Kinds of objects that a migration creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Table,
    Index,
    Trigger,
}

/// One object that a migration creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) made: Made,
    pub(crate) name: String,
    /// The table being created, for an index inside of it.
    pub(crate) table: String,
    /// The line that creates it.
    pub(crate) line: String,
}

/// Lists the objects that the SQL of a migration creates, so that missing ones can be named. Parses
/// the SQL itself: a separate list would be forgotten at the next change.
pub(crate) fn parts(migration: &str) -> Vec<Part> {
    let (mut parts, mut table) = (Vec::new(), String::new());
    for line in migration.lines() {
        let line = line.trim();
        let starts = [
            (Made::Table, "CREATE TABLE IF NOT EXISTS "),
            (Made::Index, "CREATE INDEX IF NOT EXISTS "),
            (Made::Index, "CREATE UNIQUE INDEX IF NOT EXISTS "),
            (Made::Index, "CREATE INDEX "),
            (Made::Index, "CREATE UNIQUE INDEX "),
            (Made::Index, "UNIQUE KEY "),
            (Made::Index, "KEY "),
            (Made::Trigger, "CREATE OR REPLACE TRIGGER "),
            (Made::Trigger, "CREATE TRIGGER IF NOT EXISTS "),
            (Made::Trigger, "CREATE TRIGGER "),
        ];
        let found =
            starts.iter().find_map(|(made, start)| Some((*made, line.strip_prefix(start)?)));
        let Some((made, rest)) = found else { continue };
        let word = rest.split([' ', '(']).next().unwrap_or_default();
        let name = word.trim_matches(['"', '`']).to_owned();
        if made == Made::Table {
            table.clone_from(&name);
        }
        let line = line.trim_end_matches(',').to_owned();
        parts.push(Part { made, name, table: table.clone(), line });
    }
    parts
}

/// Returns a finding for each missing part, or one finding if none is missing. `fix` returns the
/// fix for a missing part.
pub(crate) fn missing_parts(
    parts: &[Part],
    there: impl Fn(&Part) -> bool,
    fix: impl Fn(&Part) -> String,
) -> Vec<Finding> {
    let missing: Vec<_> = parts.iter().filter(|part| !there(part)).collect();
    if missing.is_empty() {
        let found = format!("all {} tables, indexes and triggers are there", parts.len());
        return vec![Finding::ok("schema", found)];
    }
    let tell = |part: &&Part| {
        let (name, what) = match part.made {
            Made::Table => ("table", "is missing"),
            Made::Index => ("index", "is missing or not usable: claims read the whole table"),
            Made::Trigger => ("trigger", "is missing or disabled: appends are not counted"),
        };
        Finding::error(format!("{name} {}", part.name), what, fix(part))
    };
    missing.iter().map(tell).collect()
}

/// Parses `10.11.6-MariaDB` as `(10, 11)`.
pub(crate) fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_says_what_it_makes() {
        let sql = "-- CREATE TABLE IF NOT EXISTS no (\n\
             CREATE TABLE IF NOT EXISTS \"a\" (\n  id int\n);\n\
                   CREATE INDEX IF NOT EXISTS \"a_x\"\n ON \"a\" (id);\n\
                   CREATE TABLE IF NOT EXISTS `b` (\n  \
             UNIQUE KEY `b_y` (id),\n  KEY `b_z` (id)\n);\n\
                   CREATE OR REPLACE TRIGGER \"a_t\" AFTER INSERT ON \"a\"";
        let made: Vec<_> = parts(sql).into_iter().map(|p| (p.made, p.name, p.table)).collect();
        let part = |made, name: &str, table: &str| (made, name.to_owned(), table.to_owned());
        assert_eq!(
            made,
            [
                part(Made::Table, "a", "a"),
                part(Made::Index, "a_x", "a"),
                part(Made::Table, "b", "b"),
                part(Made::Index, "b_y", "b"),
                part(Made::Index, "b_z", "b"),
                part(Made::Trigger, "a_t", "b"),
            ]
        );
    }

    #[test]
    fn versions_are_read_whatever_follows_them() {
        assert_eq!(major_minor("10.11.6-MariaDB-0+deb12u1"), (10, 11));
        assert_eq!(major_minor("15.8 (Debian 15.8-0)"), (15, 8));
        assert_eq!(major_minor("17beta1"), (17, 0));
        assert_eq!(major_minor("3.46.0"), (3, 46));
    }
}
