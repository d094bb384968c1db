//! Checks of the file with bounded cost.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::value::required;
use super::{On, SqliteStore};
use crate::OutboxSpec;
use crate::columns::sql;
use crate::contract::{
    AtLeast, Composition, Finding, Inspect, Made, Part, Result, Schema, major_minor, missing_parts,
    parts,
};

#[async_trait]
impl Inspect for SqliteStore {
    async fn failed_rows(&self, outbox: &Outbox, rows_max: u32) -> Result<AtLeast> {
        let row = sqlx::query(outbox.sql(sql!("sql/inspect.sql", "failed_rows")))
            .bind(rows_max)
            .fetch_one(&self.readers)
            .await
            .on(self)?;
        let seen: i64 = row.try_get(1)?;
        Ok(AtLeast { count: row.try_get(0)?, exact: seen < i64::from(rows_max) })
    }

    async fn composition(&self, outbox: &Outbox, rows_max: u32) -> Result<Composition> {
        let live = sqlx::query(outbox.sql(sql!("sql/inspect.sql", "live_states")))
            .bind(rows_max)
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        let dead = sqlx::query(outbox.sql(sql!("sql/inspect.sql", "unresolved_types")))
            .bind(rows_max)
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        let state = |row: &SqliteRow| Ok((required(row, 0)?, required(row, 1)?, row.try_get(2)?));
        let live = live.iter().map(state).collect::<Result<_, sqlx::Error>>()?;
        let of_type = |row: &SqliteRow| Ok((required(row, 0)?, row.try_get(1)?));
        let dead = dead.iter().map(of_type).collect::<Result<_, sqlx::Error>>()?;
        Ok(Composition::new(live, dead, rows_max))
    }

    /// Returns this machine's clock, which is the only one.
    async fn clock(&self) -> Result<DateTime<Utc>> {
        Ok(Utc::now())
    }

    async fn find_pooler(&self) -> Result<Finding> {
        Ok(Finding::ok("connection", "a file: nothing is in between"))
    }

    async fn diagnose(&self, outboxes: &[OutboxSpec], _long: Duration) -> Result<Vec<Finding>> {
        let facts = self.server_facts().await?;
        let mut findings = vec![judge_version(&facts.version)];
        let journal = facts.durability.get("journal_mode").map_or("", String::as_str);
        if journal != "wal" {
            findings.push(Finding::warning(
                "journal",
                format!("journal_mode is {journal}: readers and the writer wait for each other"),
                "run `postrider migrate`, with no other program at work on the file",
            ));
        }
        let found = sqlx::query_scalar("SELECT name FROM sqlite_master").fetch_all(&self.readers);
        let found: HashSet<String> = found.await.on(self)?.into_iter().collect();
        let expected = parts(&self.migration_sql(outboxes));
        let fix = |_: &_| "run `postrider migrate`: it makes again what is missing".to_owned();
        findings.extend(missing_parts(&expected, |part| found.contains(&part.name), fix));
        findings.push(self.look_at_rights(&expected).await);
        #[cfg(unix)]
        findings.extend(self.look_at_mode());
        Ok(findings)
    }
}

impl SqliteStore {
    /// Warns about a file that every user can read, as earlier versions and other programs create
    /// it.
    #[cfg(unix)]
    fn look_at_mode(&self) -> Option<Finding> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&self.file).ok()?.permissions().mode() & 0o777;
        let file = self.file.display();
        (mode & 0o007 != 0).then(|| {
            Finding::warning(
                "file",
                format!("every user of this machine can open {file} (mode {mode:04o})"),
                format!("`chmod o-rwx {file}*`: it holds payloads"),
            )
        })
    }

    /// Checks whether the file is writable: takes a write lock and releases it.
    async fn look_at_rights(&self, expected: &[Part]) -> Finding {
        let tables = expected.iter().filter(|part| part.made == Made::Table).count();
        let file = self.file.display();
        match self.begin().await {
            Ok(tx) => match tx.rollback().await {
                Ok(()) => Finding::ok("rights", format!("{file} with {tables} tables is writable")),
                Err(error) => Finding::error("rights", error.to_string(), "see the message"),
            },
            Err(error) => Finding::error(
                "rights",
                error.to_string(),
                format!("give this program the right to write {file} and its folder"),
            ),
        }
    }
}

fn judge_version(version: &str) -> Finding {
    let number = version.trim_start_matches("SQLite ");
    match major_minor(number) >= (3, 35) {
        true => Finding::ok("library", version),
        false => Finding::error(
            "library",
            format!("{version} is too old: RETURNING came with 3.35"),
            "build postrider with its bundled SQLite",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Verdict;

    #[test]
    fn an_old_library_is_found() {
        assert_eq!(judge_version("SQLite 3.34.1").verdict, Verdict::Error);
        assert_eq!(judge_version("SQLite 3.46.0").verdict, Verdict::Ok);
    }
}
