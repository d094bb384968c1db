//! A client without Postrider on the same database: plain statements in a plain loop, with no
//! leases, ledger or retries. Its figures are the limits that the benches are compared with.

use postrider::{Appended, NewEvent, Outbox};
use postrider_command::Failure;
use postrider_store::{Appender, StoreError};
use sqlx::{AssertSqlSafe, QueryBuilder, Row};

use super::event::Maker;

/// The columns of an event; all of them are sent to the client, as to a relay.
const COLUMNS: &str = "id, event_id, request_id, aggregate_type, aggregate_id, event_type, \
                       payload, headers, content_hash, created_at";
const PLAIN_COLUMNS: &str = "aggregate_type, aggregate_id, event_type, payload";
/// Takes the write lock at once, as the documentation recommends for applications.
const SQLITE_BEGIN: &str = "BEGIN IMMEDIATE";

/// Plain connections.
#[derive(Clone)]
pub(super) struct Bare(Appender);

/// Runs the same statements on the pool of any database; the body uses the names `$pool` and
/// `$quote`.
macro_rules! on_pool {
    ($bare:expr, |$pool:ident, $quote:ident| $body:expr) => {
        match &$bare.0 {
            Appender::Postgres($pool) => {
                let $quote = |name: &str| format!("\"{name}\"");
                $body
            }
            Appender::Mysql($pool) => {
                let $quote = |name: &str| format!("`{name}`");
                $body
            }
            Appender::Sqlite($pool) => {
                let $quote = |name: &str| format!("\"{name}\"");
                $body
            }
        }
    };
}

impl Bare {
    pub(super) async fn connect(url: &str, connections: u32) -> Result<Self, Failure> {
        Ok(Self(Appender::connect(url, connections).await?))
    }

    pub(super) fn appender(&self) -> &Appender {
        &self.0
    }

    /// Returns whether there is an outbox with this name, or a table with its table's name.
    pub(super) async fn exists(&self, outbox: &Outbox) -> Result<bool, Failure> {
        on_pool!(self, |pool, quote| {
            let table = format!("SELECT 1 FROM {} WHERE 1 = 0", quote(outbox.table()));
            // The name is safe in quotes: `Outbox` lets only plain identifiers be one.
            let named =
                format!("SELECT 1 FROM postrider_outboxes WHERE name = '{}'", outbox.name());
            let has_table = answered(sqlx::query(AssertSqlSafe(table)).fetch_optional(pool).await)?;
            let has_name = answered(sqlx::query(AssertSqlSafe(named)).fetch_optional(pool).await)?;
            Ok(has_table.is_some() || matches!(has_name, Some(Some(_))))
        })
    }

    /// Removes everything from a table: repeatedly reads a chunk by primary key and deletes it.
    /// Returns the number of rows.
    pub(super) async fn take_out(
        &self,
        table: &str,
        batch: u32,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, Failure> {
        let (mut last, mut taken) = (0_i64, 0_u64);
        on_pool!(self, |pool, quote| {
            let mark = |n: u8| self.mark(n);
            let read = format!(
                "SELECT {COLUMNS} FROM {} WHERE id > {} ORDER BY id LIMIT {}",
                quote(table),
                mark(1),
                mark(2),
            );
            let delete = format!(
                "DELETE FROM {} WHERE id > {} AND id <= {}",
                quote(table),
                mark(1),
                mark(2)
            );
            let mut connection = pool.acquire().await.map_err(StoreError::from)?;
            loop {
                let rows = sqlx::query(AssertSqlSafe(read.clone()))
                    .bind(last)
                    .bind(i64::from(batch))
                    .fetch_all(&mut *connection)
                    .await
                    .map_err(StoreError::from)?;
                let Some(row) = rows.last() else { return Ok(taken) };
                let until: i64 = row.try_get(0).map_err(StoreError::from)?;
                sqlx::query(AssertSqlSafe(delete.clone()))
                    .bind(last)
                    .bind(until)
                    .execute(&mut *connection)
                    .await
                    .map_err(StoreError::from)?;
                last = until;
                taken += rows.len() as u64;
                progress(taken);
            }
        })
    }

    /// Returns ids and payloads of the oldest visible rows, in the order of ids.
    pub(super) async fn read_first(
        &self,
        table: &str,
        batch: u32,
    ) -> Result<Vec<(i64, String)>, Failure> {
        on_pool!(self, |pool, quote| {
            let read = format!("SELECT {COLUMNS} FROM {} ORDER BY id LIMIT {batch}", quote(table));
            let rows = sqlx::query(AssertSqlSafe(read)).fetch_all(pool).await;
            let event = |row: &_| Ok((Row::try_get(row, "id")?, Row::try_get(row, "payload")?));
            let events: Result<Vec<_>, sqlx::Error> =
                rows.and_then(|rows| rows.iter().map(event).collect());
            Ok(events.map_err(StoreError::from)?)
        })
    }

    /// Deletes by id, not by range: a row with a smaller id may have been committed since these
    /// were read.
    pub(super) async fn delete(&self, table: &str, ids: &[i64]) -> Result<(), Failure> {
        let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        on_pool!(self, |pool, quote| {
            let delete = format!("DELETE FROM {} WHERE id IN ({})", quote(table), ids.join(","));
            // Each statement is different, so caching them as prepared statements is useless.
            let delete = sqlx::query(AssertSqlSafe(delete)).persistent(false);
            delete.execute(pool).await.map_err(StoreError::from)?;
            Ok(())
        })
    }

    /// Creates a table with only the data of an event: no defaults, triggers or further indexes.
    pub(super) async fn create_plain_table(&self, table: &str) -> Result<(), Failure> {
        let id = match &self.0 {
            Appender::Postgres(_) => "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            Appender::Mysql(_) => "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            Appender::Sqlite(_) => "INTEGER PRIMARY KEY AUTOINCREMENT",
        };
        on_pool!(self, |pool, quote| {
            let create = format!(
                "CREATE TABLE {} (id {id}, aggregate_type varchar(100) NOT NULL, aggregate_id \
                 varchar(255) NOT NULL, event_type varchar(200) NOT NULL, payload text NOT NULL)",
                quote(table)
            );
            sqlx::query(AssertSqlSafe(create)).execute(pool).await.map_err(StoreError::from)?;
            Ok(())
        })
    }

    pub(super) async fn drop_table(&self, table: &str) -> Result<(), Failure> {
        on_pool!(self, |pool, quote| {
            let drop = format!("DROP TABLE IF EXISTS {}", quote(table));
            sqlx::query(AssertSqlSafe(drop)).execute(pool).await.map_err(StoreError::from)?;
            Ok(())
        })
    }

    /// Appends one event in a transaction, as an application does.
    pub(super) async fn append_one(
        &self,
        outbox: &Outbox,
        event: &NewEvent,
    ) -> Result<(), Failure> {
        let appended = match &self.0 {
            Appender::Postgres(pool) => {
                let mut transaction = pool.begin().await.map_err(StoreError::from)?;
                let appended = postrider::postgres::append(&mut transaction, outbox, event).await?;
                transaction.commit().await.map_err(StoreError::from)?;
                appended
            }
            Appender::Mysql(pool) => {
                let mut transaction = pool.begin().await.map_err(StoreError::from)?;
                let appended = postrider::mysql::append(&mut transaction, outbox, event).await?;
                transaction.commit().await.map_err(StoreError::from)?;
                appended
            }
            Appender::Sqlite(pool) => {
                let begun = pool.begin_with(SQLITE_BEGIN).await;
                let mut transaction = begun.map_err(StoreError::from)?;
                let appended = postrider::sqlite::append(&mut transaction, outbox, event).await?;
                transaction.commit().await.map_err(StoreError::from)?;
                appended
            }
        };
        match appended {
            Appended::New { .. } => Ok(()),
            Appended::Duplicate { id } => {
                Err(Failure::Partly(format!("a request id of this bench was used before, by {id}")))
            }
        }
    }

    /// Runs one plain `INSERT` in a transaction.
    pub(super) async fn insert_one(
        &self,
        table: &str,
        maker: &Maker,
        number: u64,
    ) -> Result<(), Failure> {
        let values = [1, 2, 3, 4].map(|n| self.mark(n)).join(", ");
        let begin = match &self.0 {
            Appender::Sqlite(_) => SQLITE_BEGIN,
            Appender::Postgres(_) | Appender::Mysql(_) => "BEGIN",
        };
        on_pool!(self, |pool, quote| {
            let table = quote(table);
            let insert = format!("INSERT INTO {table} ({PLAIN_COLUMNS}) VALUES ({values})");
            let mut query = sqlx::query(AssertSqlSafe(insert));
            for column in maker.columns(number) {
                query = query.bind(column);
            }
            let mut transaction = pool.begin_with(begin).await.map_err(StoreError::from)?;
            query.execute(&mut *transaction).await.map_err(StoreError::from)?;
            transaction.commit().await.map_err(StoreError::from)?;
            Ok(())
        })
    }

    /// Inserts many rows with the database's bulk method.
    pub(super) async fn insert_many(
        &self,
        table: &str,
        maker: &Maker,
        numbers: std::ops::Range<u64>,
    ) -> Result<(), Failure> {
        let head = format!("({PLAIN_COLUMNS})");
        let inserted = match &self.0 {
            Appender::Postgres(pool) => {
                // These values contain nothing that needs escaping.
                let text: String =
                    numbers.map(|number| maker.columns(number).join("\t") + "\n").collect();
                let copy = async {
                    let statement = format!("COPY \"{table}\" {head} FROM STDIN");
                    let mut connection = pool.acquire().await?;
                    let mut copy = connection.copy_in_raw(&statement).await?;
                    copy.send(text.as_bytes()).await?;
                    copy.finish().await
                };
                copy.await.map(drop)
            }
            Appender::Mysql(pool) => {
                let mut query = QueryBuilder::new(format!("INSERT INTO `{table}` {head} "));
                query.push_values(numbers, |mut row, number| {
                    for column in maker.columns(number) {
                        row.push_bind(column);
                    }
                });
                query.build().execute(pool).await.map(drop)
            }
            Appender::Sqlite(pool) => {
                let mut query = QueryBuilder::new(format!("INSERT INTO \"{table}\" {head} "));
                query.push_values(numbers, |mut row, number| {
                    for column in maker.columns(number) {
                        row.push_bind(column);
                    }
                });
                query.build().execute(pool).await.map(drop)
            }
        };
        Ok(inserted.map_err(StoreError::from)?)
    }

    /// Removes a consumer from the inbox and from its ledger.
    pub(super) async fn empty_inbox(&self, consumer: &str) -> Result<(), Failure> {
        for table in ["postrider_inbox", "postrider_inbox_ledger"] {
            let delete = format!("DELETE FROM {table} WHERE consumer = {}", self.mark(1));
            on_pool!(self, |pool, _quote| {
                let emptied = sqlx::query(AssertSqlSafe(delete)).bind(consumer).execute(pool).await;
                emptied.map(drop).map_err(StoreError::from)?;
            });
        }
        Ok(())
    }

    /// Opens a transaction that has read something and writes nothing; it stays open until it is
    /// dropped.
    pub(super) async fn hold_snapshot(&self) -> Result<HeldSnapshot, Failure> {
        let held = async {
            Ok::<_, sqlx::Error>(match &self.0 {
                Appender::Postgres(pool) => {
                    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ";
                    let mut transaction = pool.begin_with(begin).await?;
                    // The first statement takes the snapshot.
                    sqlx::query("SELECT 1").execute(&mut *transaction).await?;
                    HeldSnapshot::Postgres(transaction)
                }
                Appender::Mysql(pool) => {
                    let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
                    HeldSnapshot::Mysql(pool.begin_with(begin).await?)
                }
                Appender::Sqlite(pool) => {
                    let mut transaction = pool.begin().await?;
                    sqlx::query("SELECT count(*) FROM postrider_relays")
                        .execute(&mut *transaction)
                        .await?;
                    HeldSnapshot::Sqlite(transaction)
                }
            })
        };
        Ok(held.await.map_err(StoreError::from)?)
    }

    /// Returns the placeholder of a statement's parameter.
    fn mark(&self, number: u8) -> String {
        match &self.0 {
            Appender::Mysql(_) => "?".to_owned(),
            Appender::Postgres(_) | Appender::Sqlite(_) => format!("${number}"),
        }
    }
}

/// An open transaction.
pub(super) enum HeldSnapshot {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Mysql(sqlx::Transaction<'static, sqlx::MySql>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl HeldSnapshot {
    /// Ends the transaction. Fails if it had already been lost, in which case nothing was held.
    pub(super) async fn release(self) -> Result<(), Failure> {
        let ended = match self {
            Self::Postgres(transaction) => transaction.commit().await,
            Self::Mysql(transaction) => transaction.commit().await,
            Self::Sqlite(transaction) => transaction.commit().await,
        };
        Ok(ended.map_err(StoreError::from)?)
    }
}

/// Returns `None` if the database reports that the table does not exist.
fn answered<T>(result: Result<T, sqlx::Error>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(sqlx::Error::Database(error))
            if matches!(error.code().as_deref(), Some("42P01" | "42S02"))
                || error.message().contains("no such table") =>
        {
            Ok(None)
        }
        Err(error) => Err(StoreError::from(error).into()),
    }
}
