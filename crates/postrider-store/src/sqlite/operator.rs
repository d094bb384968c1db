//! Operator work on SQLite: its dialect, its parameters and rows, its pools.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::{AppendError, Appended, NewEvent, Outbox};
use serde_json::json;
use sqlx::query::Query as SqlxQuery;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Row as _, Sqlite, Transaction};

use super::{ROWS_MAX, SqliteStore, batches, explain, stored, value};
use crate::StoreError;
use crate::columns::with_columns;
use crate::contract::job_step::Entry;
use crate::contract::{Batch, Lease, Result, StoreKind, TableTarget};
use crate::operator::{Columns, Connection, Dialect, Query, Row, SqlStore, Value};

/// The SQL of the clock, with something added to it.
fn clock(modifier: &str) -> String {
    format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now'{modifier})")
}

fn markers(name: &str, argument: &str) -> Option<String> {
    Some(match name {
        "now" => clock(""),
        "ago" => clock(&format!(", (-{argument} / 1000.0) || ' seconds'")),
        "ahead" => clock(&format!(", ({argument} / 1000.0) || ' seconds'")),
        "in_seconds" => clock(&format!(", '+' || {argument} || ' seconds'")),
        "ms_since" => {
            format!("CAST((julianday('now') - julianday({argument})) * 86400000 AS INTEGER)")
        }
        "seconds_since" => format!("unixepoch('now') - unixepoch({argument})"),
        "hour" => format!("CAST(strftime('%s', {argument}) AS INTEGER) / 3600"),
        // Whoever writes holds the lock on everything.
        "lock" | "lock_free" | "primary" => String::new(),
        "index" => format!("INDEXED BY {argument}"),
        "unresolved" => "NOT resolved".to_owned(),
        "replayed" => "(CASE WHEN json_valid(headers) \
             THEN json_type(headers, '$.\"postrider-replay\"') IS NOT NULL ELSE FALSE END)"
            .to_owned(),
        "instr" => "instr".to_owned(),
        "integer" => "INTEGER".to_owned(),
        "among" => format!("IN (SELECT value FROM json_each({argument}))"),
        "unless_known" => format!("ON CONFLICT ({argument}) DO NOTHING"),
        "returning" => format!("RETURNING {argument}"),
        cast if cast.starts_with("::") => String::new(),
        _ => return None,
    })
}

#[async_trait]
impl Connection for SqliteConnection {
    const DIALECT: Dialect = Dialect {
        statements: with_columns!(include_str!("sql/operator.sql")),
        quote: '"',
        numbered: true,
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
        bind(sqlx::query(sql), values).fetch_one(self).await?.try_get(0)
    }

    async fn insert_unless_known(&mut self, query: Query<'_>) -> sqlx::Result<bool> {
        Ok(Connection::execute(self, query).await? > 0)
    }

    async fn insert_copies(
        &mut self,
        query: Query<'_>,
        _: &[Entry],
        _: &Outbox,
    ) -> Result<Vec<Entry>> {
        let rows = Connection::fetch(self, query).await?;
        rows.iter().map(|row| Ok((row.number("id")?, row.text("event_id")?))).collect()
    }

    async fn append(&mut self, outbox: &Outbox, event: &NewEvent) -> Result<Appended, AppendError> {
        postrider::sqlite::append(self, outbox, event).await
    }

    async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        postrider::sqlite::append_all(self, outbox, events).await
    }

    async fn check_table(&mut self, target: &TableTarget) -> Result<()> {
        batches::check_table(self, target).await
    }

    async fn add_counts(&mut self, target: &TableTarget, batch: &Batch) -> Result<Option<String>> {
        batches::add_counts(self, target, batch).await
    }
}

type SqliteQuery<'q> = SqlxQuery<'q, Sqlite, SqliteArguments>;

fn bind(query: SqliteQuery<'_>, values: Vec<Value>) -> SqliteQuery<'_> {
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) | Value::Identity(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Boolean(value) => query.bind(value),
        Value::Time(time) => query.bind(time.map(stored)),
        Value::Id(id) => query.bind(id),
        Value::Ids(ids) => query.bind(json!(ids).to_string()),
    })
}

impl Columns for SqliteRow {
    fn text(&self, column: &str) -> sqlx::Result<Option<String>> {
        value::text(self, column)
    }

    fn bytes(&self, column: &str) -> sqlx::Result<Option<Vec<u8>>> {
        self.try_get(column)
    }

    fn integer(&self, column: &str) -> sqlx::Result<Option<i64>> {
        value::number_or_none(self, column)
    }

    fn boolean(&self, column: &str) -> sqlx::Result<Option<bool>> {
        Ok(value::number_or_none::<i64>(self, column)?.map(|number| number != 0))
    }

    fn time(&self, column: &str) -> sqlx::Result<Option<DateTime<Utc>>> {
        value::time_or_none(self, column)
    }
}

#[async_trait]
impl SqlStore for SqliteStore {
    type Db = Sqlite;

    const KIND: StoreKind = StoreKind::Sqlite;
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const ROWS_MAX: u32 = ROWS_MAX;
    const REST: Duration = Duration::from_millis(10);
    const APPENDS_TO_LEDGER: bool = false;

    fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    fn writers(&self) -> &SqlitePool {
        &self.writer
    }

    fn explain(&self, error: sqlx::Error) -> StoreError {
        explain(error, &self.file)
    }

    async fn begin_for(&self, lease: &Lease) -> Result<Transaction<'static, Sqlite>> {
        self.begin_held(lease).await
    }
}
