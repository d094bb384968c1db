//! Checks of tables and server with bounded cost.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use sqlx::{AssertSqlSafe, Row};

use super::MysqlStore;
use super::server::Server;
use crate::OutboxSpec;
use crate::columns::sql;
use crate::contract::{
    AtLeast, Composition, Finding, Inspect, Made, Part, Result, Schema, missing_parts, parts,
};

#[async_trait]
impl Inspect for MysqlStore {
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
        let now: chrono::NaiveDateTime =
            sqlx::query_scalar("SELECT UTC_TIMESTAMP(6)").fetch_one(&self.pool).await?;
        Ok(now.and_utc())
    }

    /// A pooler is present if the session of one connection changes after another begins a
    /// transaction.
    async fn find_pooler(&self) -> Result<Finding> {
        let subject = "connection";
        let (mut first, mut second) = (self.pool.acquire().await?, self.pool.acquire().await?);
        let before: u64 =
            sqlx::raw_sql("SELECT CONNECTION_ID()").fetch_one(&mut *first).await?.try_get(0)?;
        sqlx::raw_sql("BEGIN").execute(&mut *second).await?;
        let after: u64 =
            sqlx::raw_sql("SELECT CONNECTION_ID()").fetch_one(&mut *first).await?.try_get(0)?;
        sqlx::raw_sql("ROLLBACK").execute(&mut *second).await?;
        Ok(match before == after {
            true => Finding::ok(subject, "sessions are our own"),
            false => Finding::error(
                subject,
                "a proxy is in between that changes the session from one transaction to the next",
                "connect to the server itself, or switch multiplexing off: session settings must \
                 stay",
            ),
        })
    }

    async fn diagnose(&self, outboxes: &[OutboxSpec], long: Duration) -> Result<Vec<Finding>> {
        let facts = self.server_facts().await?;
        let mut findings = vec![judge_version(&facts.version)];
        let flush = facts.durability.get("innodb_flush_log_at_trx_commit");
        if flush.is_some_and(|flush| flush != "1") {
            findings.push(Finding::warning(
                "durability",
                "innodb_flush_log_at_trx_commit is not 1: a crash of the server may lose commits",
                "set it to 1 in the server",
            ));
        }
        findings.extend(self.look_at_binary_log().await?);
        findings.extend(self.look_at_parts(outboxes).await?);
        findings.push(self.look_at_rights(outboxes).await?);
        findings.extend(self.look_at_purge(long).await?);
        Ok(findings)
    }
}

impl MysqlStore {
    async fn look_at_binary_log(&self) -> Result<Option<Finding>> {
        let variables = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')";
        let variables: HashMap<String, String> =
            sqlx::query_as(variables).fetch_all(&self.pool).await?.into_iter().collect();
        let is = |name: &str, value: &str| {
            variables.get(name).is_some_and(|set| set.eq_ignore_ascii_case(value))
        };
        Ok((is("log_bin", "ON") && is("binlog_format", "STATEMENT")).then(|| {
            Finding::warning(
                "binary log",
                "binlog_format is STATEMENT: replicas would generate IDs of their own, and \
                 appends at READ COMMITTED fail",
                "set binlog_format = ROW in the server",
            )
        }))
    }

    async fn look_at_parts(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>> {
        let parts = parts(&self.migration_sql(outboxes));
        let mut found = HashSet::new();
        // By table: a search of the whole schema opens every table of it.
        let tables = parts.iter().filter(|part| part.made == Made::Table);
        for table in tables.map(|part| &part.name) {
            let names: Vec<String> = sqlx::query_scalar(
                "SELECT TABLE_NAME FROM information_schema.TABLES
                 WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?
                 UNION SELECT CONCAT(TABLE_NAME, '.', INDEX_NAME) FROM information_schema.STATISTICS
                 WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?
                 UNION SELECT CONCAT('trigger ', TRIGGER_NAME) FROM information_schema.TRIGGERS
                 WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ?",
            )
            .bind(table)
            .bind(table)
            .bind(table)
            .fetch_all(&self.pool)
            .await?;
            found.extend(names);
        }
        let there = |part: &Part| match part.made {
            Made::Table => found.contains(&part.name),
            Made::Index => found.contains(&format!("{}.{}", part.table, part.name)),
            Made::Trigger => found.contains(&format!("trigger {}", part.name)),
        };
        // A migration creates missing tables and triggers, and does not change existing tables.
        let fix = |part: &Part| match part.made {
            Made::Index => format!("ALTER TABLE `{}` ADD {}", part.table, part.line),
            _ => "run `postrider migrate`: it makes again what is missing".to_owned(),
        };
        Ok(missing_parts(&parts, there, fix))
    }

    /// Checks with statements that change nothing, because grants come from users, roles, databases
    /// and tables.
    async fn look_at_rights(&self, outboxes: &[OutboxSpec]) -> Result<Finding> {
        let mut lacks = Vec::new();
        for part in parts(&self.migration_sql(outboxes)) {
            if part.made != Made::Table {
                continue;
            }
            let (table, column) = (&part.name, first_column(&part.name));
            let select = format!("SELECT `{column}` FROM `{table}` WHERE 1 = 0");
            let mut statements = vec![("SELECT", select.clone())];
            if !matches!(table.as_str(), "postrider_schema" | "postrider_outboxes") {
                let set = format!("`{column}` = `{column}`");
                statements.extend([
                    ("INSERT", format!("INSERT INTO `{table}` (`{column}`) {select}")),
                    ("UPDATE", format!("UPDATE `{table}` SET {set} WHERE 1 = 0")),
                    ("DELETE", format!("DELETE FROM `{table}` WHERE 1 = 0")),
                ]);
            }
            for (right, statement) in statements {
                let tried = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&self.pool).await;
                if tried
                    .is_err_and(|error| matches!(super::error_number(&error), Some(1142 | 1143)))
                {
                    lacks.push(format!("{right} on {table}"));
                }
            }
        }
        let process = "SELECT COUNT(*) FROM information_schema.INNODB_TRX";
        if sqlx::raw_sql(process).execute(&self.pool).await.is_err() {
            lacks.push("PROCESS".to_owned());
        }
        Ok(match lacks.is_empty() {
            true => Finding::ok("rights", "this user may do what a relay does"),
            false => Finding::error(
                "rights",
                format!("this user lacks {}", lacks.join(", ")),
                "grant them: `postrider migrate --print` ends with the statements",
            ),
        })
    }

    async fn look_at_purge(&self, long: Duration) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut connection = self.pool.acquire().await?;
        // No other call may get a session in another time zone.
        connection.close_on_drop();
        sqlx::raw_sql("SET SESSION time_zone = 'SYSTEM'").execute(&mut *connection).await?;
        let sessions = sqlx::query_as(sql!("sql/inspect.sql", "find_long_sessions"))
            .bind(long.as_secs())
            .fetch_all(&mut *connection)
            .await;
        // If the grant to see them is missing, the check of grants reports that.
        let sessions: Vec<(u64, String, i64)> = sessions.unwrap_or_default();
        for (thread, user, seconds) in sessions {
            findings.push(Finding::warning(
                format!("session {thread}"),
                format!(
                    "{user} has had a transaction open for {seconds} s: purge cannot remove what \
                     was delivered since"
                ),
                format!("end it there, or with KILL {thread}"),
            ));
        }
        let prepared = sqlx::raw_sql("XA RECOVER").fetch_all(&mut *connection).await;
        for row in prepared.unwrap_or_default() {
            // Bytes, because transaction names are bytes.
            let data: Vec<u8> = row.try_get_unchecked(3).unwrap_or_default();
            let data = String::from_utf8_lossy(&data);
            findings.push(Finding::warning(
                format!("prepared transaction {data}"),
                "it keeps its locks and holds back purge",
                format!("XA COMMIT '{data}' or XA ROLLBACK '{data}'"),
            ));
        }
        if findings.is_empty() {
            findings.push(Finding::ok("purge", "nothing holds it back"));
        }
        Ok(findings)
    }
}

/// Returns a column that the table with this name has.
fn first_column(table: &str) -> &'static str {
    match table {
        "postrider_schema" => "version",
        "postrider_outboxes" => "name",
        "postrider_lanes" | "postrider_parked_keys" => "outbox",
        ledger if ledger.ends_with("_ledger") => "minute",
        _ => "id",
    }
}

/// Names the server. One that is too old was refused when the store connected.
fn judge_version(version: &str) -> Finding {
    let subject = "server";
    match Server::of_version(version) {
        Server::MariaDb => Finding::ok(subject, version),
        Server::MySql => Finding::ok(subject, format!("MySQL {version}")),
    }
}
