//! Looks at tables and server that cost little however much is in them: for the monitor, and for
//! `doctor`.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::Result;
use crate::{Outbox, OutboxSpec};

/// A number that was counted only so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct AtLeast {
    /// What was counted.
    pub count: i64,
    /// Whether that is all.
    pub exact: bool,
}

/// Events of one type in one state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateCount {
    /// The event type.
    pub event_type: String,
    /// PENDING, PROCESSING, FAILED or DEAD_LETTER.
    pub status: String,
    /// How many.
    pub count: i64,
}

/// What an outbox is made of, as far as it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Composition {
    /// The oldest live events by type and state.
    pub live: Vec<StateCount>,
    /// Whether that is all of them.
    pub live_exact: bool,
    /// The newest unresolved dead letters by type.
    pub dead_letters: Vec<(String, i64)>,
    /// Whether that is all of them.
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

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and somebody should look at it.
    Warning,
    /// Events do not get through, or are not safe.
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub verdict: Verdict,
    /// What was looked at.
    pub subject: String,
    /// What was found.
    pub finding: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(subject: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject: subject.into(), finding: finding.into(), cure: None }
    }

    /// It works, and somebody should look at it.
    pub fn warning(
        subject: impl Into<String>,
        finding: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warning, cure: Some(cure.into()), ..Self::ok(subject, finding) }
    }

    /// Events do not get through, or are not safe.
    pub fn wrong(
        subject: impl Into<String>,
        finding: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::warning(subject, finding, cure) }
    }
}

/// Bounded looks.
#[async_trait]
pub trait Watch: Send + Sync {
    /// Events in FAILED, among the first `rows_max` that wait for their time.
    async fn failed_rows(&self, outbox: &Outbox, rows_max: u32) -> Result<AtLeast>;

    /// Types and states of the oldest `rows_max` live events and of as many dead letters.
    async fn composition(&self, outbox: &Outbox, rows_max: u32) -> Result<Composition>;

    /// The database's clock.
    async fn clock(&self) -> Result<DateTime<Utc>>;

    /// Whether what lies between here and the database gives a session to others between two
    /// transactions. Asked first: with such a one, other calls may fail.
    async fn find_pooler(&self) -> Result<Finding>;

    /// What else stands in the way: an old server, settings that lose commits, missing indexes,
    /// triggers and rights, and whatever has held back vacuum or purge for longer than `long`.
    async fn diagnose(&self, outboxes: &[OutboxSpec], long: Duration) -> Result<Vec<Finding>>;
}

/// A kind of thing that a migration makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Table,
    Index,
    Trigger,
}

/// One thing that a migration makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) made: Made,
    pub(crate) name: String,
    /// The table that is being made, for an index inside of it.
    pub(crate) table: String,
    /// The line that makes it.
    pub(crate) line: String,
}

/// What the SQL of a migration makes, so that what is missing can be named. By the text itself: a
/// list beside it would be forgotten at the next change.
pub(crate) fn parts(migration: &str) -> Vec<Part> {
    let (mut parts, mut table) = (Vec::new(), String::new());
    for line in migration.lines() {
        let line = line.trim();
        let starts = [
            (Made::Table, "CREATE TABLE IF NOT EXISTS "),
            (Made::Index, "CREATE INDEX IF NOT EXISTS "),
            (Made::Index, "CREATE UNIQUE INDEX IF NOT EXISTS "),
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

/// A finding for each part that is not there, or one for all that are. `cure` is for what is missing.
pub(crate) fn missing_parts(
    parts: &[Part],
    there: impl Fn(&Part) -> bool,
    cure: impl Fn(&Part) -> String,
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
            Made::Trigger => ("trigger", "is missing or disabled: appends are not booked"),
        };
        Finding::wrong(format!("{name} {}", part.name), what, cure(part))
    };
    missing.iter().map(tell).collect()
}

/// `10.11.6-MariaDB` as `(10, 11)`.
pub(crate) fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_says_what_it_makes() {
        let sql = "-- CREATE TABLE IF NOT EXISTS no (\nCREATE TABLE IF NOT EXISTS \"a\" (\n  id int\n);\n\
                   CREATE INDEX IF NOT EXISTS \"a_x\"\n ON \"a\" (id);\n\
                   CREATE TABLE IF NOT EXISTS `b` (\n  UNIQUE KEY `b_y` (id),\n  KEY `b_z` (id)\n);\n\
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
