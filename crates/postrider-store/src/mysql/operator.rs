//! Operator work on MariaDB: its dialect, its parameters and rows, its pools.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::internal::{REPORTED_IDS_MAX, insert_reporting_ids, signed, sql};
use postrider::{AppendError, Appended, NewEvent, Outbox};
use serde_json::json;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query as SqlxQuery;
use sqlx::{MySql, MySqlPool, Row as _, Transaction};

use super::{MysqlStore, READ_COMMITTED, batches, time};
use crate::StoreError;
use crate::columns::with_columns;
use crate::contract::job_step::Entry;
use crate::contract::{Batch, Lease, OldestRows, Result, StoreKind, TableTarget};
use crate::operator::{Columns, Connection, Dialect, Query, Row, SqlStore, Value};

fn markers(name: &str, argument: &str) -> Option<String> {
    Some(match name {
        "now" => "UTC_TIMESTAMP(6)".to_owned(),
        "ago" => format!("UTC_TIMESTAMP(6) - INTERVAL {argument} * 1000 MICROSECOND"),
        "ahead" => format!("UTC_TIMESTAMP(6) + INTERVAL {argument} * 1000 MICROSECOND"),
        "in_seconds" => format!("UTC_TIMESTAMP(6) + INTERVAL {argument} SECOND"),
        "ms_since" => {
            format!("TIMESTAMPDIFF(MICROSECOND, {argument}, UTC_TIMESTAMP(6)) DIV 1000")
        }
        "seconds_since" => format!("TIMESTAMPDIFF(SECOND, {argument}, UTC_TIMESTAMP(6))"),
        "hour" => format!("TIMESTAMPDIFF(HOUR, '1970-01-01', {argument})"),
        "lock" => "FOR UPDATE".to_owned(),
        "lock_free" => "FOR UPDATE SKIP LOCKED".to_owned(),
        "primary" => "FORCE INDEX (PRIMARY)".to_owned(),
        "index" => format!("FORCE INDEX ({argument})"),
        "unresolved" => "resolved = 0".to_owned(),
        "replayed" => {
            "COALESCE(JSON_CONTAINS_PATH(headers, 'one', '$.\"postrider-replay\"'), FALSE)"
                .to_owned()
        }
        "instr" => "instr".to_owned(),
        "integer" => "SIGNED".to_owned(),
        "among" => format!(
            "IN (SELECT d.id FROM JSON_TABLE({argument}, '$[*]' COLUMNS (id BIGINT PATH '$')) AS d)"
        ),
        // A known key is error 1062, and the new id is in the answer of the insert.
        "unless_known" | "returning" => String::new(),
        cast if cast.starts_with("::") => String::new(),
        _ => return None,
    })
}

#[async_trait]
impl Connection for MySqlConnection {
    const DIALECT: Dialect = Dialect {
        statements: with_columns!(include_str!("sql/operator.sql")),
        quote: '`',
        numbered: false,
        markers,
    };

    async fn fetch(&mut self, query: Query<'_>) -> sqlx::Result<Vec<Row>> {
        let (sql, values) = query.render(&Self::DIALECT)?;
        let rows = bind(sqlx::query(sql), values).fetch_all(self).await?;
        Ok(rows.into_iter().map(|row| Row(Box::new(row))).collect())
    }

    async fn execute(&mut self, query: Query<'_>) -> sqlx::Result<u64> {
        let (sql, values) = query.render(&Self::DIALECT)?;
        Ok(bind(sqlx::query(sql), values).execute(self).await?.rows_affected())
    }

    async fn insert(&mut self, query: Query<'_>) -> sqlx::Result<i64> {
        let (sql, values) = query.render(&Self::DIALECT)?;
        let inserted = bind(sqlx::query(sql), values).execute(self).await?;
        Ok(signed(inserted.last_insert_id()))
    }

    async fn insert_unless_known(&mut self, query: Query<'_>) -> sqlx::Result<bool> {
        match Connection::execute(self, query).await {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The ids come from the trigger, in the order of the entries: an `INSERT … SELECT` has as many
    /// rows as the entries that are still there, and one that was cleaned up meanwhile would shift
    /// the rest, so then the step is undone.
    async fn insert_copies(
        &mut self,
        query: Query<'_>,
        entries: &[Entry],
        into: &Outbox,
    ) -> Result<Vec<Entry>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let (sql, values) = query.render(&Self::DIALECT)?;
        let (inserted, reported) =
            insert_reporting_ids(self, bind(sqlx::query(sql), values)).await?;
        inserted?;
        if reported.len() != entries.len() {
            return Err(StoreError::Schema(format!(
                "{} events were to be inserted, and {} were: trigger {}_appended is missing or \
                 altered, or an entry was cleaned up at this moment; resume the job",
                entries.len(),
                reported.len(),
                into.table()
            )));
        }
        Ok(reported.into_iter().zip(entries).map(|(id, (_, event))| (id, event.clone())).collect())
    }

    async fn append(&mut self, outbox: &Outbox, event: &NewEvent) -> Result<Appended, AppendError> {
        postrider::mysql::append(self, outbox, event).await
    }

    async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        postrider::mysql::append_all(self, outbox, events).await
    }

    async fn check_table(&mut self, target: &TableTarget) -> Result<()> {
        batches::check_table(self, target).await
    }

    async fn add_counts(&mut self, target: &TableTarget, batch: &Batch) -> Result<Option<String>> {
        batches::add_counts(self, target, batch).await
    }
}

type MySqlQuery<'q> = SqlxQuery<'q, MySql, MySqlArguments>;

fn bind(query: MySqlQuery<'_>, values: Vec<Value>) -> MySqlQuery<'_> {
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) | Value::Identity(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Boolean(value) => query.bind(value),
        Value::Time(time) => query.bind(time.map(time::stored)),
        Value::Id(id) => query.bind(id),
        Value::Ids(ids) => query.bind(json!(ids).to_string()),
    })
}

impl Columns for MySqlRow {
    fn text(&self, column: &str) -> sqlx::Result<Option<String>> {
        self.try_get(column)
    }

    fn bytes(&self, column: &str) -> sqlx::Result<Option<Vec<u8>>> {
        self.try_get(column)
    }

    fn integer(&self, column: &str) -> sqlx::Result<Option<i64>> {
        self.try_get(column)
    }

    fn boolean(&self, column: &str) -> sqlx::Result<Option<bool>> {
        self.try_get(column)
    }

    fn time(&self, column: &str) -> sqlx::Result<Option<DateTime<Utc>>> {
        time::time_or_none(self, column)
    }
}

#[async_trait]
impl SqlStore for MysqlStore {
    type Db = MySql;

    const KIND: StoreKind = StoreKind::Mysql;
    const BEGIN: &'static str = "BEGIN";
    /// Of a pool of the application, too: rows of other consumers are looked at, and not kept
    /// locked.
    const BEGIN_CLEAN_UP: &'static str = READ_COMMITTED;
    const ENTRIES_MAX: u32 = REPORTED_IDS_MAX;

    fn readers(&self) -> &MySqlPool {
        &self.pool
    }

    fn writers(&self) -> &MySqlPool {
        &self.pool
    }

    fn oldest_rows(&self) -> Option<&OldestRows> {
        Some(&self.oldest_rows)
    }

    async fn begin_for(&self, lease: &Lease) -> Result<Transaction<'static, MySql>> {
        self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)
    }

    async fn clean_locks(&self, chunk: u32) -> Result<u64> {
        let mut tx = self.begin().await?;
        let unused: Vec<String> = sqlx::query_scalar(sql!("sql/lease.sql", "clean_locks_find"))
            .bind(chunk)
            .fetch_all(&mut *tx)
            .await?;
        sqlx::query(sql!("sql/lease.sql", "clean_locks"))
            .bind(json!(unused).to_string())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(unused.len() as u64)
    }
}
