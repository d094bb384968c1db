//! The transaction: lock, check, move, record, append. All of it happens, or nothing.

use std::time::Duration;

use chrono::Utc;
use postrider::{NewEvent, Outbox};
use postrider_store::StoreError;
use serde_json::json;

use crate::donation::{Donated, Donation, Member, Receipt, Refusal};

/// Maximum time that a donation waits for another one of the same guest.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of repeats after deadlocks and races for a request id.
const REPEATS_MAX: usize = 5;
/// Maximum number of connections to a database server.
const CONNECTIONS_MAX: u32 = 16;

const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS members (
        id VARCHAR(50) PRIMARY KEY,
        points BIGINT NOT NULL CHECK (points >= 0),
        fingerprint VARCHAR(50) UNIQUE)",
    "CREATE TABLE IF NOT EXISTS donations (
        request_id VARCHAR(50) PRIMARY KEY,
        guest_id VARCHAR(50) NOT NULL,
        admin_id VARCHAR(50) NOT NULL,
        amount BIGINT NOT NULL CHECK (amount > 0),
        guest_points BIGINT NOT NULL,
        donated_at VARCHAR(40) NOT NULL)",
];

/// Members, their points and the history, on one of the three databases.
#[derive(Clone)]
pub(crate) enum Ledger {
    Postgres(sqlx::PgPool, Outbox),
    Mysql(sqlx::MySqlPool, Outbox),
    Sqlite(sqlx::SqlitePool, Outbox),
}

/// Evaluates the same expression on each database, whose modules have the same functions.
macro_rules! on_each {
    ($ledger:expr, $module:ident, $pool:ident, $outbox:pat => $body:expr) => {
        match $ledger {
            Ledger::Postgres($pool, $outbox) => {
                use postgres as $module;
                $body
            }
            Ledger::Mysql($pool, $outbox) => {
                use mysql as $module;
                $body
            }
            Ledger::Sqlite($pool, $outbox) => {
                use sqlite as $module;
                $body
            }
        }
    };
}

impl Ledger {
    /// Connects and creates the business tables.
    pub(crate) async fn connect(url: &str, outbox: Outbox) -> Result<Self, StoreError> {
        let ledger = match url.split(':').next() {
            Some("postgres" | "postgresql") => {
                let options = sqlx::postgres::PgPoolOptions::new();
                Self::Postgres(options.max_connections(CONNECTIONS_MAX).connect(url).await?, outbox)
            }
            Some("mysql" | "mariadb") => {
                let options = sqlx::mysql::MySqlPoolOptions::new();
                Self::Mysql(options.max_connections(CONNECTIONS_MAX).connect(url).await?, outbox)
            }
            // SQLite has one writer at a time; more connections would only wait for each other.
            _ => {
                let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
                let connect = postrider::sqlite::connect_options(url)?;
                Self::Sqlite(options.connect_with(connect).await?, outbox)
            }
        };
        on_each!(&ledger, store, pool, _ => store::make_tables(pool).await)?;
        Ok(ledger)
    }

    /// Adds a member.
    pub(crate) async fn add(&self, member: &Member) -> Result<(), Refusal> {
        member.check()?;
        match on_each!(self, store, pool, _ => store::add(pool, member).await) {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                Err(Refusal::MemberExists(member.id.clone()))
            }
            other => Ok(other?),
        }
    }

    /// Returns a member by id.
    pub(crate) async fn member(&self, id: &str) -> Result<Option<Member>, Refusal> {
        Ok(on_each!(self, store, pool, _ => store::member(pool, id).await)?)
    }

    /// Returns the history of one guest or of all guests, newest first.
    pub(crate) async fn history(
        &self,
        guest_id: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Receipt>, Refusal> {
        let guest_id = guest_id.unwrap_or_default();
        Ok(on_each!(self, store, pool, _ => store::history(pool, guest_id, limit).await)?)
    }

    /// Donates, or returns the receipt of an earlier request with the same id.
    pub(crate) async fn donate(&self, donation: &Donation) -> Result<Donated, Refusal> {
        donation.check()?;
        let mut repeats = 0;
        loop {
            let done = on_each!(self, store, pool, outbox => {
                store::donate(pool, outbox, donation).await
            });
            match done {
                Err(refusal) if refusal.may_repeat() && repeats < REPEATS_MAX => repeats += 1,
                other => return other,
            }
        }
    }
}

/// Builds the event for the notification. Its request id is the donation's, so the notification is
/// not sent twice either.
fn completed(receipt: &Receipt) -> NewEvent {
    let payload = json!(receipt).to_string();
    NewEvent::new("guest", &receipt.guest_id, "DONATION_COMPLETED", payload)
        .request_id(&receipt.request_id)
}

/// Numbers the placeholders for PostgreSQL; the other two databases take `?`.
fn numbered(sql: &str) -> String {
    let mut numbered = String::with_capacity(sql.len() + 16);
    for (index, part) in sql.split('?').enumerate() {
        if index > 0 {
            numbered.push_str(&format!("${index}"));
        }
        numbered.push_str(part);
    }
    numbered
}

/// Generates a module per database. The statements are the same; types, placeholders and the way to
/// begin a transaction differ.
macro_rules! store {
    ($module:ident, $pool:ty, $row:ty, $sql:expr, $begin:literal, $table_options:literal) => {
        mod $module {
            use sqlx::{AssertSqlSafe, Row};

            use super::*;

            fn sql(statement: &str) -> AssertSqlSafe<String> {
                AssertSqlSafe($sql(statement))
            }

            pub(super) async fn make_tables(pool: &$pool) -> Result<(), sqlx::Error> {
                for table in TABLES {
                    let statement = AssertSqlSafe(format!("{table}{}", $table_options));
                    sqlx::raw_sql(statement).execute(pool).await?;
                }
                Ok(())
            }

            pub(super) async fn add(pool: &$pool, member: &Member) -> Result<(), sqlx::Error> {
                sqlx::query(sql("INSERT INTO members (id, points, fingerprint) VALUES (?, ?, ?)"))
                    .bind(&member.id)
                    .bind(member.points)
                    .bind(&member.fingerprint)
                    .execute(pool)
                    .await
                    .map(|_| ())
            }

            pub(super) async fn member(
                pool: &$pool,
                id: &str,
            ) -> Result<Option<Member>, sqlx::Error> {
                let found: Option<(String, i64, Option<String>)> =
                    sqlx::query_as(sql("SELECT id, points, fingerprint FROM members WHERE id = ?"))
                        .bind(id)
                        .fetch_optional(pool)
                        .await?;
                Ok(found.map(|(id, points, fingerprint)| Member { id, points, fingerprint }))
            }

            pub(super) async fn history(
                pool: &$pool,
                guest_id: &str,
                limit: u32,
            ) -> Result<Vec<Receipt>, sqlx::Error> {
                let rows = sqlx::query(sql(
                    "SELECT request_id, guest_id, admin_id, amount, guest_points, donated_at
                     FROM donations WHERE (? = '' OR guest_id = ?) \
             ORDER BY donated_at DESC LIMIT ?",
                ))
                .bind(guest_id)
                .bind(guest_id)
                .bind(i64::from(limit))
                .fetch_all(pool)
                .await?;
                rows.iter().map(receipt).collect()
            }

            fn receipt(row: &$row) -> Result<Receipt, sqlx::Error> {
                Ok(Receipt {
                    request_id: row.try_get(0)?,
                    guest_id: row.try_get(1)?,
                    admin_id: row.try_get(2)?,
                    amount: row.try_get(3)?,
                    guest_points: row.try_get(4)?,
                    donated_at: row.try_get(5)?,
                })
            }

            pub(super) async fn donate(
                pool: &$pool,
                outbox: &Outbox,
                donation: &Donation,
            ) -> Result<Donated, Refusal> {
                let Donation { request_id, guest_id, admin_fingerprint, amount } = donation;
                let mut tx = pool.begin_with($begin).await?;
                // Held until the end, so that donations of one guest run one after the other.
                let lock = format!("guest:{guest_id}");
                postrider::$module::lock(&mut tx, &lock, LOCK_TIMEOUT).await?;

                let admin: Option<String> =
                    sqlx::query_scalar(sql("SELECT id FROM members WHERE fingerprint = ?"))
                        .bind(admin_fingerprint)
                        .fetch_optional(&mut *tx)
                        .await?;
                let Some(admin_id) = admin else { return Err(Refusal::UnknownAdmin) };

                let first = sqlx::query(sql(
                    "SELECT request_id, guest_id, admin_id, amount, guest_points, donated_at
                     FROM donations WHERE request_id = ?",
                ))
                .bind(request_id)
                .fetch_optional(&mut *tx)
                .await?;
                if let Some(row) = first {
                    let first = receipt(&row)?;
                    let same = first.guest_id == *guest_id
                        && first.admin_id == admin_id
                        && first.amount == *amount;
                    return match same {
                        true => Ok(Donated { receipt: first, repeated: true }),
                        false => Err(Refusal::Conflict(request_id.clone())),
                    };
                }

                let points: Option<i64> = sqlx::query_scalar(sql(
                    "SELECT points FROM members WHERE id = ? AND fingerprint IS NULL",
                ))
                .bind(guest_id)
                .fetch_optional(&mut *tx)
                .await?;
                let Some(points) = points else {
                    return Err(Refusal::UnknownGuest(guest_id.clone()));
                };
                if points < *amount {
                    return Err(Refusal::Insufficient { points, amount: *amount });
                }

                // The conditions hold whatever others write: the balance never becomes negative or
                // overflows.
                let given = sqlx::query(sql(
                    "UPDATE members SET points = points - ? WHERE id = ? AND points >= ?",
                ))
                .bind(amount)
                .bind(guest_id)
                .bind(amount)
                .execute(&mut *tx)
                .await?;
                if given.rows_affected() == 0 {
                    // Another program that does not take the lock has spent points since they were
                    // read.
                    tx.rollback().await?;
                    let points = member(pool, guest_id).await?.map_or(0, |guest| guest.points);
                    return Err(Refusal::Insufficient { points, amount: *amount });
                }
                let taken = sqlx::query(sql(
                    "UPDATE members SET points = points + ? WHERE id = ? AND points <= ?",
                ))
                .bind(amount)
                .bind(&admin_id)
                .bind(i64::MAX - amount)
                .execute(&mut *tx)
                .await?;
                if taken.rows_affected() == 0 {
                    return Err(Refusal::Overflow(*amount));
                }

                let receipt = Receipt {
                    request_id: request_id.clone(),
                    guest_id: guest_id.clone(),
                    admin_id,
                    amount: *amount,
                    guest_points: points - amount,
                    donated_at: Utc::now().to_rfc3339(),
                };
                sqlx::query(sql("INSERT INTO donations
                         (request_id, guest_id, admin_id, amount, guest_points, donated_at)
                     VALUES (?, ?, ?, ?, ?, ?)"))
                .bind(&receipt.request_id)
                .bind(&receipt.guest_id)
                .bind(&receipt.admin_id)
                .bind(receipt.amount)
                .bind(receipt.guest_points)
                .bind(&receipt.donated_at)
                .execute(&mut *tx)
                .await?;
                let appended =
                    postrider::$module::append(&mut tx, outbox, &completed(&receipt)).await?;
                if appended.is_duplicate() {
                    // Known to the outbox but not to the history: someone removed rows by hand.
                    return Err(Refusal::Conflict(request_id.clone()));
                }
                tx.commit().await?;
                Ok(Donated { receipt, repeated: false })
            }
        }
    };
}

store!(postgres, sqlx::PgPool, sqlx::postgres::PgRow, numbered, "BEGIN", "");
store!(
    mysql,
    sqlx::MySqlPool,
    sqlx::mysql::MySqlRow,
    str::to_owned,
    "BEGIN",
    // Ids that differ in case are different ids.
    " DEFAULT CHARACTER SET utf8mb4 COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */"
);
store!(sqlite, sqlx::SqlitePool, sqlx::sqlite::SqliteRow, str::to_owned, "BEGIN IMMEDIATE", "");
