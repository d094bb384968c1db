//! Lists open transactions: the other half of the horizon (`store/horizon.rs`).
//!
//! `information_schema.INNODB_TRX` is a cache of the server. It is refreshed only when it has not
//! been read for 100 ms, so readers that together read it more often see the same old list forever:
//! a list that lacks a writer of the last minutes, and a horizon that passes its ids. Therefore a
//! list counts only with a proof of its age. The reader has a transaction of its own, and its query
//! carries a unique mark: a list that shows this query was made after it was sent. Without the
//! proof the horizon stays where it is, which is correct, and the reader waits longer, which leaves
//! the gap that the cache needs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{MysqlStore, error_number};
use crate::columns::sql;
use crate::contract::{Result, begin};

/// Maximum age of a list that is used.
pub(super) const LIST_AGE_MAX: Duration = Duration::from_millis(250);
/// Wait after a read that returned an old list, doubled up to the maximum.
const STALE_WAIT: Duration = Duration::from_millis(250);
const STALE_WAIT_MAX: Duration = Duration::from_secs(8);
/// The server's "you need the PROCESS privilege".
const ACCESS_DENIED: u16 = 1227;

/// The last known list of open transactions.
#[derive(Debug, Default)]
pub(super) struct Writers {
    listed_at: Option<Instant>,
    open: BTreeSet<String>,
    stale_wait: Duration,
    look_after: Option<Instant>,
    forbidden: bool,
}

impl MysqlStore {
    /// Returns the open transactions of at most [`LIST_AGE_MAX`] ago, or `None` if they are not
    /// known.
    pub(super) async fn open_writers(&self) -> Result<Option<BTreeSet<String>>> {
        let mut known = self.writers.lock().await;
        if known.listed_at.is_some_and(|at| at.elapsed() < LIST_AGE_MAX) {
            return Ok(Some(known.open.clone()));
        }
        if known.forbidden || known.look_after.is_some_and(|at| Instant::now() < at) {
            return Ok(None);
        }
        let (now, mark) = (Instant::now(), Uuid::new_v4());
        match self.list_writers(mark).await {
            Ok(Some(open)) => {
                known.open = open;
                known.listed_at = Some(now);
                known.stale_wait = Duration::ZERO;
                Ok(Some(known.open.clone()))
            }
            Ok(None) => {
                known.stale_wait = (known.stale_wait * 2).clamp(STALE_WAIT, STALE_WAIT_MAX);
                // Spread by the mark, so that many relays do not synchronize.
                let spread = known.stale_wait.mul_f64(f64::from(mark.as_bytes()[0]) / 255.0);
                known.look_after = Some(now + known.stale_wait + spread);
                Ok(None)
            }
            Err(error) if error_number(&error) == Some(ACCESS_DENIED) => {
                known.forbidden = true;
                tracing::warn!(
                    "this user may not see open transactions (GRANT PROCESS ON *.* is missing): \
                     every claim reads the outbox from its beginning, which is slower"
                );
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the list, if it is newer than this call.
    async fn list_writers(
        &self,
        mark: Uuid,
    ) -> std::result::Result<Option<BTreeSet<String>>, sqlx::Error> {
        let query = format!("/* {mark} */ {}", sql!("sql/horizon.sql", "horizon_writers"));
        let mut tx = begin(&self.pool, "BEGIN").await?;
        // Any read of a table makes the server list this transaction.
        sqlx::query("SELECT version FROM postrider_schema").fetch_all(&mut *tx).await?;
        let rows = sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(&mut *tx).await?;
        tx.rollback().await?;
        let (mut open, mut proven) = (BTreeSet::new(), false);
        for row in rows {
            match row.try_get::<Option<String>, _>(1)? {
                Some(own) => proven |= own.contains(&mark.to_string()),
                None => drop(open.insert(row.try_get(0)?)),
            }
        }
        Ok(proven.then_some(open))
    }
}
