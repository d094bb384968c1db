//! Operator work on PostgreSQL: its dialect, its parameters and rows, its pools.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::{AppendError, Appended, NewEvent, Outbox};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query as SqlxQuery;
use sqlx::{PgConnection, PgPool, Postgres, Row as _, Transaction, TypeInfo, ValueRef};
use uuid::Uuid;

use super::{PostgresStore, batches, time};
use crate::StoreError;
use crate::columns::{sql, with_columns};
use crate::contract::job_step::Entry;
use crate::contract::{Batch, Lease, OldestRows, Result, StoreKind, TableTarget};
use crate::operator::{Columns, Connection, Dialect, Query, Row, SqlStore, Value};

fn markers(name: &str, argument: &str) -> Option<String> {
    Some(match name {
        "now" => "now()".to_owned(),
        "ago" => format!("now() - {argument} * interval '1 millisecond'"),
        "ahead" => format!("now() + {argument} * interval '1 millisecond'"),
        "in_seconds" => format!("now() + {argument} * interval '1 second'"),
        "ms_since" => format!("(extract(epoch FROM now() - {argument}) * 1000)::bigint"),
        "seconds_since" => format!("extract(epoch FROM now() - {argument})::bigint"),
        // Not extract: that one is numeric, and slower by half.
        "hour" => format!("date_part('epoch', {argument})::bigint / 3600"),
        "lock" => "FOR UPDATE".to_owned(),
        "lock_free" => "FOR UPDATE SKIP LOCKED".to_owned(),
        "primary" | "index" => String::new(),
        "unresolved" => "NOT resolved".to_owned(),
        "replayed" => "coalesce(headers ? 'postrider-replay', false)".to_owned(),
        "instr" => "strpos".to_owned(),
        "integer" => "bigint".to_owned(),
        "among" => format!("= ANY ({argument})"),
        "unless_known" => format!("ON CONFLICT ({argument}) DO NOTHING"),
        "returning" => format!("RETURNING {argument}"),
        cast if cast.starts_with("::") => cast.to_owned(),
        _ => return None,
    })
}

#[async_trait]
impl Connection for PgConnection {
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
        postrider::postgres::append(self, outbox, event).await
    }

    async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        postrider::postgres::append_all(self, outbox, events).await
    }

    async fn check_table(&mut self, target: &TableTarget) -> Result<()> {
        batches::key_type(self, target).await.map(drop)
    }

    async fn add_counts(&mut self, target: &TableTarget, batch: &Batch) -> Result<Option<String>> {
        batches::add_counts(self, target, batch).await
    }
}

type PgQuery<'q> = SqlxQuery<'q, Postgres, PgArguments>;

fn bind(query: PgQuery<'_>, values: Vec<Value>) -> PgQuery<'_> {
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Boolean(value) => query.bind(value),
        Value::Time(time) => query.bind(time),
        Value::Identity(text) => query.bind(text.map(identity)),
        Value::Id(id) => query.bind(id),
        Value::Ids(ids) => query.bind(ids),
    })
}

/// What an identity that is not a UUID is compared with: no event has it.
fn identity(text: String) -> Uuid {
    Uuid::parse_str(&text).unwrap_or(Uuid::max())
}

impl Columns for PgRow {
    fn text(&self, column: &str) -> sqlx::Result<Option<String>> {
        let value = self.try_get_raw(column)?;
        if value.is_null() {
            return Ok(None);
        }
        match value.type_info().name() {
            "UUID" => Ok(Some(self.try_get::<Uuid, _>(column)?.to_string())),
            "JSONB" => Ok(Some(json(value.as_bytes().map_err(sqlx::Error::Decode)?))),
            _ => self.try_get(column),
        }
    }

    fn bytes(&self, column: &str) -> sqlx::Result<Option<Vec<u8>>> {
        self.try_get(column)
    }

    fn integer(&self, column: &str) -> sqlx::Result<Option<i64>> {
        match self.try_get_raw(column)?.type_info().name() {
            "INT2" => Ok(self.try_get::<Option<i16>, _>(column)?.map(i64::from)),
            "INT4" => Ok(self.try_get::<Option<i32>, _>(column)?.map(i64::from)),
            _ => self.try_get(column),
        }
    }

    fn boolean(&self, column: &str) -> sqlx::Result<Option<bool>> {
        self.try_get(column)
    }

    fn time(&self, column: &str) -> sqlx::Result<Option<DateTime<Utc>>> {
        time::time_or_none(self, column)
    }
}

/// The text of a `jsonb`, whose first byte is the version of the format.
fn json(bytes: &[u8]) -> String {
    let text = bytes.strip_prefix(&[1]).unwrap_or(bytes);
    String::from_utf8_lossy(text).into_owned()
}

#[async_trait]
impl SqlStore for PostgresStore {
    type Db = Postgres;

    const KIND: StoreKind = StoreKind::Postgres;
    const BEGIN: &'static str = "BEGIN";

    fn readers(&self) -> &PgPool {
        &self.pool
    }

    fn writers(&self) -> &PgPool {
        &self.pool
    }

    fn oldest_rows(&self) -> Option<&OldestRows> {
        Some(&self.oldest_rows)
    }

    async fn begin_for(&self, lease: &Lease) -> Result<Transaction<'static, Postgres>> {
        let mut tx = self.begin().await?;
        let held: Option<i32> = sqlx::query_scalar(sql!("sql/lease.sql", "lease_hold"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&mut *tx)
            .await?;
        held.map(|_| tx).ok_or(StoreError::LeaseLost)
    }

    /// With the planner's settings for this statement: those of the relay's sessions are for looks
    /// by index.
    async fn fetch_whole(&self, query: Query<'_>) -> Result<Vec<Row>> {
        let mut tx = self.begin().await?;
        if let Some(settings) = query.settings(&PgConnection::DIALECT) {
            sqlx::raw_sql(settings).execute(&mut *tx).await?;
        }
        Ok(Connection::fetch(&mut *tx, query).await?)
    }
}
