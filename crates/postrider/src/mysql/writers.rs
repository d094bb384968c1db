//! Which transactions are open: the other half of the horizon (`store/horizon.rs`).
//!
//! `information_schema.INNODB_TRX` is a cache of the server's. It is filled anew only when nobody has
//! read it for 100 ms, so readers that come more often than that, together, see the same old list
//! for ever: a list that lacks a writer of the last minutes, and a horizon that passes its ids.
//! Therefore a list counts only with a proof of its age. The reader has a transaction of its own,
//! and its query carries a mark that was never used before: a list that shows this query was made
//! after it was sent. Without the proof the horizon stays where it is, which is correct, and the
//! reader comes less often, which leaves the gap that the cache needs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::{MysqlStore, error_number};
use crate::store::{Result, begin};

/// How old a list may be when it is used.
pub(super) const LIST_AGE_MAX: Duration = Duration::from_millis(250);
/// Time to the next look after one that showed an old list, doubled up to the maximum.
const STALE_WAIT: Duration = Duration::from_millis(250);
const STALE_WAIT_MAX: Duration = Duration::from_secs(8);
/// The server's "you need the PROCESS privilege".
const ACCESS_DENIED: u16 = 1227;

/// What the store last learned of open transactions.
#[derive(Debug, Default)]
pub(super) struct Writers {
    listed_at: Option<Instant>,
    open: BTreeSet<String>,
    stale_wait: Duration,
    look_after: Option<Instant>,
    forbidden: bool,
}

impl MysqlStore {
    /// The open transactions of at most [`LIST_AGE_MAX`] ago, or `None` where that is not known.
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
                // Spread by the mark, so that many relays do not come in step.
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

    /// The list, if it is newer than this call.
    async fn list_writers(
        &self,
        mark: Uuid,
    ) -> std::result::Result<Option<BTreeSet<String>>, sqlx::Error> {
        let query = format!("/* {mark} */ {}", include_str!("sql/horizon_writers.sql"));
        let mut tx = begin(&self.pool, "BEGIN").await?;
        // Any read of a table: it is what lists this transaction.
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
