//! Checks of tables and server with bounded cost.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider::internal::millis;
use sqlx::Row;

use super::PostgresStore;
use crate::OutboxSpec;
use crate::columns::sql;
use crate::contract::{
    AtLeast, Composition, Finding, Inspect, Made, Result, Schema, major_minor, missing_parts, parts,
};

/// Timeout of the first of two sessions while the second is in a transaction.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
const SESSION_POOL: &str = "connect to the server itself, or through a pool in session mode: \
     session settings, prepared statements and notifications do not survive between transactions";

#[async_trait]
impl Inspect for PostgresStore {
    async fn failed_rows(&self, outbox: &Outbox, rows_max: u32) -> Result<AtLeast> {
        let row = sqlx::query(outbox.sql(sql!("sql/inspect.sql", "failed_rows")))
            .bind(i64::from(rows_max))
            .fetch_one(&self.pool)
            .await?;
        let seen: i64 = row.try_get(1)?;
        Ok(AtLeast { count: row.try_get(0)?, exact: seen < i64::from(rows_max) })
    }

    async fn composition(&self, outbox: &Outbox, rows_max: u32) -> Result<Composition> {
        let live = sqlx::query_as(outbox.sql(sql!("sql/inspect.sql", "live_states")))
            .bind(i64::from(rows_max))
            .fetch_all(&self.pool)
            .await?;
        let dead = sqlx::query_as(outbox.sql(sql!("sql/inspect.sql", "unresolved_types")))
            .bind(i64::from(rows_max))
            .fetch_all(&self.pool)
            .await?;
        Ok(Composition::new(live, dead, rows_max))
    }

    async fn clock(&self) -> Result<DateTime<Utc>> {
        Ok(sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&self.pool).await?)
    }

    /// Compares two sessions: the server process of the first must not change while the second, in
    /// a transaction, takes the one that a pool would have to spare. Uses the simple protocol,
    /// because prepared statements fail behind such a pool.
    async fn find_pooler(&self) -> Result<Finding> {
        const PROCESS: &str = "SELECT pg_backend_pid()";
        let subject = "connection";
        let (mut first, mut second) = (self.pool.acquire().await?, self.pool.acquire().await?);
        let before: i32 = sqlx::raw_sql(PROCESS).fetch_one(&mut *first).await?.try_get(0)?;
        sqlx::raw_sql("BEGIN").execute(&mut *second).await?;
        sqlx::raw_sql(PROCESS).execute(&mut *second).await?;
        let after = sqlx::raw_sql(PROCESS).fetch_one(&mut *first);
        let after = tokio::time::timeout(PROBE_TIMEOUT, after).await;
        sqlx::raw_sql("ROLLBACK").execute(&mut *second).await?;
        Ok(match after {
            Ok(row) if row.as_ref().is_ok_and(|row| row.try_get(0).ok() == Some(before)) => {
                Finding::ok(subject, "sessions are our own")
            }
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(_)) => Finding::error(
                subject,
                "a pool in transaction mode is in between: the session changes from one \
                 transaction to the next",
                SESSION_POOL,
            ),
            // A connection that is dropped while it waits cannot be used any more.
            Err(_) => {
                first.close_on_drop();
                Finding::error(
                    subject,
                    "one session waits until another ends its transaction: a pool with too few \
                     connections is in between",
                    SESSION_POOL,
                )
            }
        })
    }

    async fn diagnose(&self, outboxes: &[OutboxSpec], long: Duration) -> Result<Vec<Finding>> {
        let mut findings = vec![self.look_at_server().await?];
        findings.extend(self.look_at_durability().await?);
        findings.extend(self.look_at_parts(outboxes).await?);
        findings.push(self.look_at_rights(outboxes).await?);
        findings.extend(self.look_at_vacuum(long).await?);
        Ok(findings)
    }
}

impl PostgresStore {
    async fn look_at_server(&self) -> Result<Finding> {
        let version: String =
            sqlx::query_scalar("SHOW server_version").fetch_one(&self.pool).await?;
        Ok(judge_version(&version))
    }

    async fn look_at_durability(&self) -> Result<Vec<Finding>> {
        let facts = self.server_facts().await?;
        let off = facts.durability.iter().filter(|(_, value)| value.as_str() == "off");
        Ok(off
            .map(|(name, _)| {
                let finding = format!("{name} is off: a crash of the server may lose commits");
                Finding::warning("durability", finding, format!("set {name} = on in the server"))
            })
            .collect())
    }

    async fn look_at_parts(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>> {
        let found: Vec<String> =
            sqlx::query_scalar(sql!("sql/inspect.sql", "find_parts")).fetch_all(&self.pool).await?;
        let found: HashSet<String> = found.into_iter().collect();
        let parts = parts(&self.migration_sql(outboxes));
        let fix = |_: &_| "run `postrider migrate`: it makes again what is missing".to_owned();
        Ok(missing_parts(&parts, |part| found.contains(&part.name), fix))
    }

    async fn look_at_rights(&self, outboxes: &[OutboxSpec]) -> Result<Finding> {
        let (mut tables, mut rights) = (Vec::new(), Vec::new());
        for part in parts(&self.migration_sql(outboxes)) {
            let wanted = match (part.made, part.name.as_str()) {
                (Made::Table, "postrider_schema" | "postrider_outboxes") => &["SELECT"][..],
                // Rows reach a partition through its parent table.
                (Made::Table, name) if name.ends_with("_archive_rest") => &[],
                (Made::Table, _) => &["SELECT", "INSERT", "UPDATE", "DELETE"],
                _ => &[],
            };
            for right in wanted {
                tables.push(part.name.clone());
                rights.push((*right).to_owned());
            }
        }
        let missing: Vec<(String, String)> =
            sqlx::query_as(sql!("sql/inspect.sql", "find_missing_rights"))
                .bind(&tables)
                .bind(&rights)
                .fetch_all(&self.pool)
                .await?;
        let lacks: Vec<String> =
            missing.iter().map(|(table, right)| format!("{right} on {table}")).collect();
        Ok(match lacks.is_empty() {
            true => Finding::ok("rights", "this user may do what a relay does"),
            false => Finding::error(
                "rights",
                format!("this user lacks {}", lacks.join(", ")),
                "grant them: `postrider migrate --print` ends with the statements",
            ),
        })
    }

    async fn look_at_vacuum(&self, long: Duration) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let sessions: Vec<(i32, String, String, String, i64)> =
            sqlx::query_as(sql!("sql/inspect.sql", "find_long_sessions"))
                .bind(millis(long))
                .fetch_all(&self.pool)
                .await?;
        for (pid, user, program, state, seconds) in sessions {
            findings.push(Finding::warning(
                format!("session {pid}"),
                format!(
                    "{user} ({program}, {state}) has had a transaction open for {seconds} s: \
                     vacuum cannot remove what was delivered since"
                ),
                format!("end it there, or with SELECT pg_terminate_backend({pid})"),
            ));
        }
        let slots: Vec<(String, String, bool, i64)> =
            sqlx::query_as(sql!("sql/inspect.sql", "find_idle_slots"))
                .fetch_all(&self.pool)
                .await?;
        for (slot, kind, holds_vacuum, log_bytes) in slots {
            let vacuum = if holds_vacuum { ", and holds back vacuum" } else { "" };
            findings.push(Finding::warning(
                format!("replication slot {slot}"),
                format!(
                    "no consumer reads this {kind} slot: it keeps {} MiB of the log{vacuum}",
                    log_bytes / (1024 * 1024)
                ),
                format!(
                    "start its reader, or if there is none any more: \
                     SELECT pg_drop_replication_slot('{slot}')"
                ),
            ));
        }
        let prepared: Vec<(String, String, i64)> =
            sqlx::query_as(sql!("sql/inspect.sql", "find_prepared"))
                .bind(millis(long))
                .fetch_all(&self.pool)
                .await?;
        for (gid, owner, seconds) in prepared {
            findings.push(Finding::warning(
                format!("prepared transaction {gid}"),
                format!("of {owner}, {seconds} s old: it keeps its locks and holds back vacuum"),
                format!("COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'"),
            ));
        }
        if findings.is_empty() {
            findings.push(Finding::ok("vacuum", "nothing holds it back"));
        }
        Ok(findings)
    }
}

fn judge_version(version: &str) -> Finding {
    let subject = "server";
    match major_minor(version).0 {
        14.. => Finding::ok(subject, format!("PostgreSQL {version}")),
        _ => Finding::error(
            subject,
            format!(
                "PostgreSQL {version} is too old: FOR UPDATE SKIP LOCKED came with 9.5, CREATE OR \
                 REPLACE TRIGGER with 14"
            ),
            "use PostgreSQL 14 or newer",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Verdict;

    #[test]
    fn a_server_without_skip_locked_is_found() {
        assert_eq!(judge_version("9.4.26").verdict, Verdict::Error);
        assert_eq!(judge_version("13.16").verdict, Verdict::Error);
        assert_eq!(judge_version("14.0").verdict, Verdict::Ok);
        assert!(judge_version("9.4.26").finding.contains("SKIP LOCKED"));
    }
}
