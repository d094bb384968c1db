//! Which server it is: MariaDB or MySQL.
//!
//! Nearly all statements are the same text for both. Where a word differs, it is in a comment that
//! only one of them executes: `/*M! … */` MariaDB, `/*!80000 … */` MySQL. What is left is here:
//! steps that only one of them needs, and which versions work.

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use super::error_number;
use crate::StoreError;
use crate::contract::{Result, major_minor};

/// The servers that this store works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    MariaDb,
    MySql,
}

/// The first versions that work.
const MARIADB_MIN: (u32, u32) = (10, 6);
const MYSQL_MIN: (u32, u32, u32) = (8, 0, 16);

/// How the comments begin that only one of them executes. They end as all comments do.
const FOR_MARIADB: &str = "/*M!";
const FOR_MYSQL: &str = "/*!80000";

/// What MySQL says of a thing that is there already (a table, a column, an index, a trigger, a
/// constraint) or no longer (an index). MariaDB's statements ask by `IF NOT EXISTS` or `IF EXISTS`.
const DONE_ALREADY: [u16; 6] = [1050, 1060, 1061, 1359, 3822, 1091];

impl Server {
    /// Asks the server.
    ///
    /// # Errors
    /// If it is too old, with the reason.
    pub(super) async fn of(connection: &mut MySqlConnection) -> Result<Self> {
        let version: String =
            sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut *connection).await?;
        let server = Self::of_version(&version);
        match server.too_old(&version) {
            Some(why) => Err(StoreError::Refused(why)),
            None => Ok(server),
        }
    }

    pub(super) fn of_version(version: &str) -> Self {
        match version.to_ascii_lowercase().contains("mariadb") {
            true => Self::MariaDb,
            false => Self::MySql,
        }
    }

    /// Returns what a version lacks and what to do, if it does not work.
    pub(super) fn too_old(self, version: &str) -> Option<String> {
        let (works, why) = match self {
            Self::MariaDb => (
                major_minor(version) >= MARIADB_MIN,
                "FOR UPDATE SKIP LOCKED came with MariaDB 10.6; use MariaDB 10.6 or newer",
            ),
            Self::MySql => (
                numbers(version) >= MYSQL_MIN,
                "CHECK constraints came with MySQL 8.0.16; use MySQL 8.0.16 or newer, or \
                 MariaDB 10.6 or newer",
            ),
        };
        (!works)
            .then(|| format!("the server is {} {version}, which is too old: {why}", self.name()))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// Runs statements of a migration that may have run before, in part. MySQL has no `IF NOT
    /// EXISTS` for columns and indexes: there, what has been done already is left alone.
    pub(super) async fn create(self, connection: &mut MySqlConnection, sql: &str) -> Result<()> {
        if self == Self::MariaDb {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
            return Ok(());
        }
        for statement in statements(&self.plain(sql)) {
            let made = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await;
            match made {
                Err(error) if error_number(&error).is_some_and(|n| DONE_ALREADY.contains(&n)) => {}
                made => {
                    made?;
                }
            }
        }
        Ok(())
    }

    /// Returns SQL as this server understands it, without the comments that choose the server.
    pub(super) fn plain(self, sql: &str) -> String {
        let (own, other) = match self {
            Self::MariaDb => (FOR_MARIADB, FOR_MYSQL),
            Self::MySql => (FOR_MYSQL, FOR_MARIADB),
        };
        let mut plain = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find(own).into_iter().chain(rest.find(other)).min() {
            let (before, from) = rest.split_at(at);
            let Some((words, after)) = from.split_once("*/") else { break };
            plain.push_str(before);
            let is_whole = before.ends_with('\n') && after.starts_with(';');
            rest = match words.strip_prefix(own) {
                Some(words) => {
                    plain.push_str(words.trim());
                    after
                }
                // A statement that is gone has no end.
                None if is_whole => &after[1..],
                // One of the two spaces around it.
                None => after.strip_prefix(' ').unwrap_or(after),
            };
        }
        plain + rest
    }
}

/// Splits statements at the ends of lines with a semicolon, without comments. None of them has a
/// body with semicolons.
fn statements(sql: &str) -> Vec<String> {
    let lines: Vec<_> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let all = lines.join("\n");
    all.split(";\n")
        .map(|one| one.trim().trim_end_matches(';').to_owned())
        .filter(|one| !one.is_empty())
        .collect()
}

/// Returns the first three numbers of a version.
fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_told_from_one_that_works() {
        for (version, works) in [
            ("10.5.9-MariaDB", false),
            ("10.6.0-MariaDB", true),
            ("11.4.2-MariaDB-log", true),
            ("5.7.44-log", false),
            ("8.0.15", false),
            ("8.0.16", true),
            ("8.0.36-0ubuntu0.22.04.1", true),
            ("8.4.0", true),
            ("9.7.4-2", true),
        ] {
            let why = Server::of_version(version).too_old(version);
            assert_eq!(why.is_none(), works, "{version}: {why:?}");
        }
    }

    #[test]
    fn each_server_has_its_own_words() {
        let sql = "A /*M! B */ C;\n/*M! D */;\nE /*M! b *//*!80000 m */;";
        assert_eq!(Server::MariaDb.plain(sql), "A B C;\nD;\nE b;");
        assert_eq!(Server::MySql.plain(sql), "A C;\n\nE m;");
    }

    #[test]
    fn statements_are_split_at_their_ends() {
        let sql =
            "-- a; comment\nCREATE TABLE a (\n    -- why;\n    x INT DEFAULT ';'\n);\n\nDROP b;\n";
        assert_eq!(statements(sql), ["CREATE TABLE a (\n    x INT DEFAULT ';'\n)", "DROP b"]);
    }
}
