//! The part of a claim that holds the write lock: finds rows and takes them.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use postrider::Outbox;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::value::{defect, number, number_or_none, required, text, time, time_or_none};
use super::{On, SqliteStore, json};
use crate::columns::{self, EventRow, Read, sql};
use crate::contract::{ClaimLimit, Cursor, Lease, Result};
use crate::{Event, StoreError};

/// Maximum number of ids that one claim passes in its search for fresh rows, about 5 ms if none is
/// fresh: a million waiting rows must not hold up the application's writes.
const SCAN_IDS_MAX: i64 = 20_000;

/// The rows that a claim took.
#[derive(Default)]
pub(super) struct Taken {
    /// Ids in ascending order.
    pub(super) ids: Vec<i64>,
    /// There may be more rows that are due now.
    pub(super) full: bool,
}

/// The result of `claim_find.sql`.
struct Found {
    /// Nothing at or below it can still commit, because this transaction is the only writer.
    last_id: i64,
    /// The last id that the search for fresh rows could reach.
    scanned_to: i64,
    /// Ids and bytes.
    waiting: Vec<(i64, u64)>,
    fresh: Vec<(i64, u64)>,
}

impl SqliteStore {
    pub(super) async fn take(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<Taken> {
        let waiting_limit = cursor.waiting_limit(limit.rows);
        let mut tx = self.begin().await?;
        let row = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_find")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(cursor.low)
            .bind(limit.rows)
            .bind(waiting_limit)
            .bind(SCAN_IDS_MAX)
            .bind(limit.share.of)
            .bind(limit.share.index)
            .fetch_optional(&mut *tx)
            .await
            .on(self)?;
        let Some(row) = row else {
            return Ok(Taken::default());
        };
        let (last_id, low): (i64, i64) = (row.try_get(0)?, cursor.low);
        cursor.notice_last_id(last_id)?;
        if cursor.low < low {
            // Ids went back, and this search started after some of them.
            return Ok(Taken { ids: Vec::new(), full: true });
        }
        let start: Option<i64> = row.try_get(1)?;
        let found = Found {
            last_id,
            scanned_to: start.map_or(last_id, |id| id.saturating_add(SCAN_IDS_MAX - 1)),
            waiting: pairs(row.try_get(2)?)?,
            fresh: pairs(row.try_get(3)?)?,
        };
        let ids = found.within(limit.bytes);
        if !ids.is_empty() {
            sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim")))
                .bind(&lease.relay_id)
                .bind(json(&ids)?)
                .execute(&mut *tx)
                .await
                .on(self)?;
        }
        tx.commit().await.on(self)?;
        let full = found.remember(cursor, &ids, limit.rows, waiting_limit);
        Ok(Taken { ids, full })
    }
}

impl Found {
    /// Returns the ids, ascending, within the byte limit; the first one in any case.
    fn within(&self, bytes_max: u64) -> Vec<i64> {
        let mut all: Vec<_> = self.waiting.iter().chain(&self.fresh).copied().collect();
        all.sort_unstable();
        let mut total = 0_u64;
        all.iter()
            .enumerate()
            .take_while(|(position, (_, bytes))| {
                total = total.saturating_add(*bytes);
                *position == 0 || total <= bytes_max
            })
            .map(|(_, (id, _))| *id)
            .collect()
    }

    /// Moves the cursor forward after the commit, and returns whether there may be more.
    fn remember(&self, cursor: &mut Cursor, taken: &[i64], rows: u32, waiting_limit: u32) -> bool {
        cursor.horizon.observe(self.last_id, BTreeSet::new());
        cursor.saw(taken.last().copied(), false);
        let (waiting, fresh) = (self.waiting.len(), self.fresh.len());
        let cut = taken.len() < waiting + fresh;
        // The search for fresh rows ended at its limit, which is zero if waiting rows filled the
        // batch.
        let room = (rows as usize).saturating_sub(waiting);
        let stopped = fresh == room;
        let goes_on = !stopped && self.scanned_to < self.last_id;
        let scanned_to = if cut || stopped {
            let last = taken.last().copied().unwrap_or(cursor.low);
            let last_fresh = self.fresh.iter().map(|(id, _)| *id).take_while(|id| *id <= last);
            Some(last_fresh.last().unwrap_or(cursor.low))
        } else {
            goes_on.then_some(self.scanned_to)
        };
        cursor.advance(cursor.horizon.closed_until(), scanned_to);
        cursor.fresh_was_empty = fresh == 0 && room > 0;
        let limit_reached = (stopped && fresh > 0) || waiting == waiting_limit as usize;
        cut || goes_on || (limit_reached && !taken.is_empty())
    }
}

pub(super) fn pairs(text: &str) -> Result<Vec<(i64, u64)>> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::Schema(format!("a search answered `{text}`: {error}")))
}

/// Decodes an event, with what is wrong with its texts.
pub(super) fn decode(row: &SqliteRow) -> std::result::Result<Event, sqlx::Error> {
    let event = columns::event(row)?;
    let odd = columns::has_replacement(&event);
    let defect = if odd { defect(row, columns::texts())? } else { None };
    Ok(Event { defect, ..event })
}

impl EventRow for SqliteRow {
    fn identity(&self, at: usize) -> Read<String> {
        required(self, at)
    }
    fn text(&self, at: usize) -> Read<String> {
        required(self, at)
    }
    fn text_or_none(&self, at: usize) -> Read<Option<String>> {
        text(self, at)
    }
    fn json(&self, at: usize) -> Read<Option<String>> {
        text(self, at)
    }
    fn count(&self, at: usize) -> Read<i32> {
        number(self, at)
    }
    fn count_or_none(&self, at: usize) -> Read<Option<i32>> {
        number_or_none(self, at)
    }
    fn long(&self, at: usize) -> Read<i64> {
        number(self, at)
    }
    fn time(&self, at: usize) -> Read<DateTime<Utc>> {
        time(self, at)
    }
    fn time_or_none(&self, at: usize) -> Read<Option<DateTime<Utc>>> {
        time_or_none(self, at)
    }
}
