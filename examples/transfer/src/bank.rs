//! The transaction: debit, credit, record, append. All of it happens, or nothing.

use std::sync::Arc;

use postrider::{AppendError, NewEvent, Outbox, Transience, transience};
use postrider_store::{ClaimMode, ConnectOptions, Database, OutboxSpec, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Maximum number of repeats after deadlocks and races for a request id.
const REPEATS_MAX: usize = 5;
/// Maximum number of connections to a database server.
const CONNECTIONS_MAX: u32 = 16;
/// Maximum number of characters in ids.
const ID_CHARS_MAX: usize = 50;

const ACCOUNTS: &str = "CREATE TABLE IF NOT EXISTS accounts (
    id VARCHAR(50) PRIMARY KEY,
    balance BIGINT NOT NULL CHECK (balance >= 0))";

/// A request to move money.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transfer {
    /// Chosen by the caller, who repeats the request with the same id if no answer arrived.
    pub(crate) request_id: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

/// A completed transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Receipt {
    pub(crate) transaction_id: i64,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

impl Receipt {
    /// Returns whether it is of this transfer, and not of another one with the same request id.
    fn is_of(&self, transfer: &Transfer) -> bool {
        (&self.from, &self.to, self.amount) == (&transfer.from, &transfer.to, transfer.amount)
    }
}

/// The reason why there was no transfer. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Malformed(String),
    #[error("there is no account `{0}`")]
    UnknownAccount(String),
    #[error("account `{account}` has {balance}, which is less than {amount}")]
    Insufficient { account: String, balance: i64, amount: i64 },
    #[error("account `{0}` cannot hold so much")]
    Overflow(String),
    #[error("request_id `{0}` was used for another transfer")]
    Conflict(String),
    #[error("there is an account `{0}` already")]
    AccountExists(String),
    #[error("the event could not be appended: {0}")]
    Append(#[from] AppendError),
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
}

impl Refusal {
    fn may_repeat(&self) -> bool {
        let error = match self {
            Self::Database(error) | Self::Append(AppendError::Database(error)) => error,
            _ => return false,
        };
        let raced = error.as_database_error().is_some_and(|error| error.is_unique_violation());
        raced || transience(error) == Transience::Busy
    }
}

pub(crate) fn check_id(field: &str, value: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match !value.is_empty() && value.len() <= ID_CHARS_MAX && value.chars().all(plain) {
        true => Ok(()),
        false => Err(Refusal::Malformed(format!(
            "{field} is malformed; use 1 to {ID_CHARS_MAX} letters, digits and - _ ."
        ))),
    }
}

impl Transfer {
    fn check(&self) -> Result<(), Refusal> {
        check_id("request_id", &self.request_id)?;
        check_id("from", &self.from)?;
        check_id("to", &self.to)?;
        if self.from == self.to {
            return Err(Refusal::Malformed("from and to are the same account".to_owned()));
        }
        match self.amount {
            1.. => Ok(()),
            amount => Err(Refusal::Malformed(format!("amount is {amount}; it is at least 1"))),
        }
    }
}

/// Builds the event. The source account is the aggregate: its transfers reach the topic in the
/// order in which they were made.
fn completed(receipt: &Receipt, request_id: &str) -> NewEvent {
    let payload = json!(receipt).to_string();
    NewEvent::new("account", &receipt.from, "TransferCompleted", payload).request_id(request_id)
}

/// Returns the outbox of this service.
pub(crate) fn outbox() -> Outbox {
    Outbox::new("transfers").expect("a plain name")
}

/// Connects to the outbox's store and creates its tables.
pub(crate) async fn store(url: &str) -> Result<Arc<dyn Database>, StoreError> {
    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    let store = postrider_store::connect(url, &options).await?;
    let spec = OutboxSpec { claim: ClaimMode::Lanes, ..OutboxSpec::new(outbox()) };
    store.migrate(&[spec]).await?;
    Ok(store)
}

/// Accounts and transactions, on one of the three databases.
#[derive(Clone)]
pub(crate) enum Bank {
    Postgres(sqlx::PgPool),
    Mysql(sqlx::MySqlPool),
    Sqlite(sqlx::SqlitePool),
}

macro_rules! on_each {
    ($bank:expr, $module:ident, $pool:ident => $body:expr) => {
        match $bank {
            Bank::Postgres($pool) => {
                use postgres as $module;
                $body
            }
            Bank::Mysql($pool) => {
                use mysql as $module;
                $body
            }
            Bank::Sqlite($pool) => {
                use sqlite as $module;
                $body
            }
        }
    };
}

impl Bank {
    /// Connects and creates the business tables.
    pub(crate) async fn connect(url: &str) -> Result<Self, StoreError> {
        let bank = match url.split(':').next() {
            Some("postgres" | "postgresql") => {
                let options = sqlx::postgres::PgPoolOptions::new();
                Self::Postgres(options.max_connections(CONNECTIONS_MAX).connect(url).await?)
            }
            Some("mysql" | "mariadb") => {
                let options = sqlx::mysql::MySqlPoolOptions::new();
                Self::Mysql(options.max_connections(CONNECTIONS_MAX).connect(url).await?)
            }
            // SQLite has one writer at a time; more connections would only wait for each other.
            _ => {
                let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
                let connect = postrider::sqlite::connect_options(url)?;
                Self::Sqlite(options.connect_with(connect).await?)
            }
        };
        on_each!(&bank, store, pool => store::make_tables(pool).await)?;
        Ok(bank)
    }

    /// Opens an account.
    pub(crate) async fn open(&self, id: &str, balance: i64) -> Result<(), Refusal> {
        check_id("id", id)?;
        if balance < 0 {
            return Err(Refusal::Malformed(format!("balance is {balance}; it is at least 0")));
        }
        match on_each!(self, store, pool => store::open(pool, id, balance).await) {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                Err(Refusal::AccountExists(id.to_owned()))
            }
            other => Ok(other?),
        }
    }

    /// Moves money, or returns the receipt of an earlier request with the same id.
    pub(crate) async fn transfer(&self, transfer: &Transfer) -> Result<Receipt, Refusal> {
        transfer.check()?;
        let mut repeats = 0;
        loop {
            let done = on_each!(self, store, pool => store::transfer(pool, transfer).await);
            match done {
                Err(refusal) if refusal.may_repeat() && repeats < REPEATS_MAX => repeats += 1,
                other => return other,
            }
        }
    }
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

/// Generates a module per database. The statements are the same; types, placeholders and locks
/// differ.
macro_rules! store {
    ($module:ident, $pool:ty, $sql:expr, $begin:literal, $id:literal, $for_update:literal,
     $table_options:literal) => {
        mod $module {
            use sqlx::AssertSqlSafe;

            use super::*;

            fn sql(statement: &str) -> AssertSqlSafe<String> {
                AssertSqlSafe($sql(statement))
            }

            pub(super) async fn make_tables(pool: &$pool) -> Result<(), sqlx::Error> {
                let transactions = format!(
                    "CREATE TABLE IF NOT EXISTS transactions (
                         id {},
                         request_id VARCHAR(50) NOT NULL UNIQUE,
                         from_account VARCHAR(50) NOT NULL,
                         to_account VARCHAR(50) NOT NULL,
                         amount BIGINT NOT NULL CHECK (amount > 0))",
                    $id
                );
                for table in [ACCOUNTS, transactions.as_str()] {
                    let statement = AssertSqlSafe(format!("{table}{}", $table_options));
                    sqlx::raw_sql(statement).execute(pool).await?;
                }
                Ok(())
            }

            pub(super) async fn open(
                pool: &$pool,
                id: &str,
                balance: i64,
            ) -> Result<(), sqlx::Error> {
                sqlx::query(sql("INSERT INTO accounts (id, balance) VALUES (?, ?)"))
                    .bind(id)
                    .bind(balance)
                    .execute(pool)
                    .await
                    .map(|_| ())
            }

            pub(super) async fn transfer(
                pool: &$pool,
                transfer: &Transfer,
            ) -> Result<Receipt, Refusal> {
                let Transfer { request_id, from, to, amount } = transfer;
                let mut tx = pool.begin_with($begin).await?;
                // Both accounts are locked, always in the same order, before any id is assigned, so
                // the ids of one account's transfers ascend with their commits.
                let locked: Vec<(String, i64)> = sqlx::query_as(sql(concat!(
                    "SELECT id, balance FROM accounts WHERE id IN (?, ?) ORDER BY id",
                    $for_update
                )))
                .bind(from)
                .bind(to)
                .fetch_all(&mut *tx)
                .await?;
                let balance_of = |account: &String| {
                    let found = locked.iter().find(|(id, _)| id == account);
                    found.map(|(_, balance)| *balance)
                };

                let first: Option<(i64, String, String, i64)> = sqlx::query_as(sql(
                    "SELECT id, from_account, to_account, amount FROM transactions
                     WHERE request_id = ?",
                ))
                .bind(request_id)
                .fetch_optional(&mut *tx)
                .await?;
                if let Some((transaction_id, from, to, amount)) = first {
                    let earlier = Receipt { transaction_id, from, to, amount };
                    let conflict = || Refusal::Conflict(request_id.clone());
                    return Some(earlier).filter(|e| e.is_of(transfer)).ok_or_else(conflict);
                }

                for (account, filled) in [(from, false), (to, true)] {
                    let Some(balance) = balance_of(account) else {
                        return Err(Refusal::UnknownAccount(account.clone()));
                    };
                    if filled && balance.checked_add(*amount).is_none() {
                        return Err(Refusal::Overflow(account.clone()));
                    }
                    if !filled && balance < *amount {
                        let account = account.clone();
                        return Err(Refusal::Insufficient { account, balance, amount: *amount });
                    }
                    let change = if filled { *amount } else { -*amount };
                    sqlx::query(sql("UPDATE accounts SET balance = balance + ? WHERE id = ?"))
                        .bind(change)
                        .bind(account)
                        .execute(&mut *tx)
                        .await?;
                }
                sqlx::query(sql(
                    "INSERT INTO transactions (request_id, from_account, to_account, amount)
                     VALUES (?, ?, ?, ?)",
                ))
                .bind(request_id)
                .bind(from)
                .bind(to)
                .bind(amount)
                .execute(&mut *tx)
                .await?;
                // Asked for by itself: MySQL has no RETURNING.
                let transaction_id: i64 =
                    sqlx::query_scalar(sql("SELECT id FROM transactions WHERE request_id = ?"))
                        .bind(request_id)
                        .fetch_one(&mut *tx)
                        .await?;
                let receipt =
                    Receipt { transaction_id, from: from.clone(), to: to.clone(), amount: *amount };
                let event = completed(&receipt, request_id);
                if postrider::$module::append(&mut tx, &outbox(), &event).await?.is_duplicate() {
                    // Known to the outbox but not to the bank: someone removed rows by hand.
                    return Err(Refusal::Conflict(request_id.clone()));
                }
                tx.commit().await?;
                Ok(receipt)
            }
        }
    };
}

store!(
    postgres,
    sqlx::PgPool,
    numbered,
    "BEGIN",
    "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    " FOR UPDATE",
    ""
);
// Ids that differ in case are different ids.
store!(
    mysql,
    sqlx::MySqlPool,
    str::to_owned,
    "BEGIN",
    "BIGINT AUTO_INCREMENT PRIMARY KEY",
    " FOR UPDATE",
    " DEFAULT CHARACTER SET utf8mb4 COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */"
);
store!(
    sqlite,
    sqlx::SqlitePool,
    str::to_owned,
    "BEGIN IMMEDIATE",
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "",
    ""
);
