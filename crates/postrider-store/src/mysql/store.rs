//! The relay's operations: leases, claim, settle.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::internal::millis;
use postrider::{Outbox, internal::fit, limits};
use serde_json::json;
use sqlx::mysql::MySqlRow;
use sqlx::{MySql, Row, Transaction};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::MysqlStore;
use super::claim::{lock_fresh, lock_waiting, take, within};
use super::settle::{SettleRow, ids_json, kept};
use super::time::{time, time_or_none};
use super::writers::LIST_AGE_MAX;
use crate::columns::{EventRow, Read, sql};
use crate::contract::{
    Capabilities, ClaimLimit, Claimed, Cursor, Death, Deferral, Delivery, Failure, Lease,
    OnSuccess, RelayIdentity, RelayPulse, Result, Serving, Settled, Store, StoreKind,
    parse_serving, serving_text,
};
use crate::{Event, StoreError, fingerprint};

/// Minimum interval between observations of the horizon.
const HORIZON_EVERY: Duration = Duration::from_millis(250);
/// Age at which a last id is used: a list of writers may be [`LIST_AGE_MAX`] old, and a transaction
/// is listed some time after it took its id (microseconds; a second is ample).
const HORIZON_LAG: Duration = LIST_AGE_MAX.saturating_add(Duration::from_secs(1));
/// Interval at which a claim starts from the beginning of the table.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Rows per step of a walk over the table.
const WALK_ROWS: i64 = 20_000;
/// The epoch of a relay that has not been declared dead.
const FIRST_EPOCH: i64 = 1;

#[async_trait]
impl Store for MysqlStore {
    fn kind(&self) -> StoreKind {
        StoreKind::Mysql
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            concurrent_writers: true,
            skips_duplicates: false,
            serialization_failures: false,
            notifies: false,
            shares_lanes: true,
        }
    }

    async fn register(&self, relay: &RelayIdentity) -> Result<Lease> {
        sqlx::query(sql!("sql/lease.sql", "register"))
            .bind(&relay.id)
            .bind(&relay.host)
            .bind(&relay.version)
            .bind(serving_text(&relay.serving))
            .bind(FIRST_EPOCH)
            .execute(&self.pool)
            .await?;
        Ok(Lease { relay_id: relay.id.clone(), epoch: FIRST_EPOCH })
    }

    async fn heartbeat(&self, lease: &Lease, serving: &[Serving]) -> Result<Vec<RelayPulse>> {
        let beat = sqlx::query(sql!("sql/lease.sql", "heartbeat"))
            .bind(serving_text(serving))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .execute(&self.pool)
            .await?;
        if beat.rows_affected() == 0 {
            return Err(StoreError::LeaseLost);
        }
        self.relays().await
    }

    async fn relays(&self) -> Result<Vec<RelayPulse>> {
        let rows = sqlx::query(sql!("sql/lease.sql", "pulses")).fetch_all(&self.pool).await?;
        rows.iter()
            .map(|row| {
                let age_ms: i64 = row.try_get(5)?;
                Ok(RelayPulse {
                    relay_id: row.try_get(0)?,
                    epoch: row.try_get(1)?,
                    heartbeat: row.try_get(2)?,
                    fenced: row.try_get(3)?,
                    host: row.try_get(4)?,
                    serving: parse_serving(row.try_get(6)?),
                    age: Duration::from_millis(age_ms.try_into().unwrap_or(0)),
                })
            })
            .collect()
    }

    async fn fence(&self, pulse: &RelayPulse) -> Result<bool> {
        let mut tx = self.begin().await?;
        let found: Option<(bool, i64, i64)> = sqlx::query_as(sql!("sql/lease.sql", "fence_lock"))
            .bind(&pulse.relay_id)
            .fetch_optional(&mut *tx)
            .await?;
        let fenced = match found {
            Some((true, ..)) => true,
            Some((false, epoch, beat)) if (epoch, beat) == (pulse.epoch, pulse.heartbeat) => {
                sqlx::query(sql!("sql/lease.sql", "fence"))
                    .bind(&pulse.relay_id)
                    .execute(&mut *tx)
                    .await?;
                true
            }
            _ => false,
        };
        tx.commit().await?;
        Ok(fenced)
    }

    async fn retire(&self, lease: &Lease) -> Result<()> {
        sqlx::query(sql!("sql/lease.sql", "retire"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn claim(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<Claimed> {
        self.observe_horizon(outbox, cursor).await?;
        cursor.sweep_if_due(SWEEP_EVERY);
        let closed_until = cursor.horizon.closed_until();
        let waiting_limit = cursor.waiting_limit(limit.rows);
        let Some(mut tx) = self.begin_held(lease).await? else {
            return Ok(Claimed::default());
        };
        let waiting = lock_waiting(&mut tx, outbox, limit.share, waiting_limit).await?;
        let waiting_found = waiting.seen;
        let fresh_room = limit.rows.saturating_sub(waiting_found);
        let fresh = lock_fresh(&mut tx, outbox, limit.share, cursor.low, fresh_room).await?;
        let fresh_found = fresh.seen;
        let fresh_ids: HashSet<i64> = fresh.locked.iter().map(|(id, _)| *id).collect();
        let candidates = [waiting.locked, fresh.locked].concat();
        let found = candidates.len();
        let taken = within(limit.bytes, candidates);
        let events = take(&mut tx, outbox, lease, &taken).await?;
        tx.commit().await?;

        let last_fresh = taken.iter().copied().rfind(|id| fresh_ids.contains(id));
        let cut = taken.len() < found;
        // A batch that was filled by waiting rows left no room to search for fresh ones: nothing
        // was scanned, and whether there are any is unknown.
        let fresh_full = fresh_found == fresh_room;
        let scanned_to = (cut || fresh_full).then(|| last_fresh.unwrap_or(cursor.low));
        cursor.saw(taken.last().copied(), false);
        cursor.advance(closed_until, scanned_to);
        cursor.fresh_was_empty = fresh_found == 0 && fresh_room > 0;
        let full = cut || fresh_full || waiting_found == waiting_limit;
        Ok(Claimed { full: full && !events.is_empty(), events })
    }

    async fn claim_suspect(&self, outbox: &Outbox, lease: &Lease) -> Result<Option<Event>> {
        let Some(mut tx) = self.begin_held(lease).await? else {
            return Ok(None);
        };
        let found: Option<(i64, i32)> =
            sqlx::query_as(outbox.sql(sql!("sql/claim.sql", "claim_suspect")))
                .fetch_optional(&mut *tx)
                .await?;
        let taken: Vec<i64> = found.into_iter().map(|(id, _)| id).collect();
        let events = take(&mut tx, outbox, lease, &taken).await?;
        tx.commit().await?;
        Ok(events.into_iter().next())
    }

    async fn has_suspect(&self, outbox: &Outbox) -> Result<bool> {
        Ok(sqlx::query_scalar(outbox.sql(sql!("sql/claim.sql", "has_suspect")))
            .fetch_one(&self.pool)
            .await?)
    }

    async fn settle_delivered(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let answered = delivered.iter().any(|d| d.response.is_some());
        let row = |d: &Delivery| match &d.response {
            Some(response) => json!([d.id, d.version, response]).to_string(),
            None => format!("[{},{}]", d.id, d.version),
        };
        let rows = delivered.iter().map(|d| SettleRow::new(d.id, &d.event_id, row(d))).collect();
        let mut statements = Vec::with_capacity(2);
        statements.extend(answered.then_some(sql!("sql/settle.sql", "settle_response")));
        statements.extend(kept(on_success));
        self.settle(outbox, lease, rows, Some("delivered"), &statements).await
    }

    async fn fan_out(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        self.settle_copies(outbox, lease, delivered, children, on_success).await
    }

    async fn settle_failed(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        failed: &[Failure],
    ) -> Result<Settled> {
        let rows = failed.iter().map(|f| {
            let error = fit(&f.error, limits::LAST_ERROR_CHARS_MAX);
            let (delay, took) = (millis(f.delay), millis(f.took));
            let row = json!([f.id, f.version, delay, error, took, lease.relay_id]);
            SettleRow::new(f.id, &f.event_id, row.to_string())
        });
        let statements = [
            sql!("sql/settle.sql", "settle_failed_note"),
            sql!("sql/settle.sql", "settle_failed_trim"),
            sql!("sql/settle.sql", "settle_failed"),
        ];
        self.settle(outbox, lease, rows.collect(), None, &statements).await
    }

    async fn settle_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let move_to_dlq = [sql!("sql/settle.sql", "settle_dead")];
        self.settle(outbox, lease, death_rows(dead), Some("dead"), &move_to_dlq).await
    }

    async fn mark_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let mark = [sql!("sql/settle.sql", "mark_dead")];
        self.settle(outbox, lease, death_rows(dead), None, &mark).await
    }

    async fn release(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        deferred: &[Deferral],
    ) -> Result<Settled> {
        let rows = deferred.iter().map(|d| {
            let error = d.error.as_deref().map(|error| fit(error, limits::LAST_ERROR_CHARS_MAX));
            let row = json!([d.id, d.version, millis(d.delay), error]);
            SettleRow::new(d.id, &d.event_id, row.to_string())
        });
        self.settle(outbox, lease, rows.collect(), None, &[sql!("sql/claim.sql", "release")]).await
    }

    async fn release_lost(&self, outbox: &Outbox, lease: &Lease, in_flight: &[i64]) -> Result<u64> {
        let in_flight: HashSet<i64> = in_flight.iter().copied().collect();
        let (mut from, mut released) = (0, 0);
        while let Some(to) = self.next_step(outbox, from).await? {
            let mut held: Vec<i64> =
                sqlx::query_scalar(outbox.sql(sql!("sql/maintenance.sql", "release_lost_find")))
                    .bind(&lease.relay_id)
                    .bind(from)
                    .bind(to)
                    .fetch_all(&self.pool)
                    .await?;
            held.retain(|id| !in_flight.contains(id));
            let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
            let step = sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "release_lost")))
                .bind(ids_json(&held))
                .bind(&lease.relay_id)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            released += step.rows_affected();
            from = to;
        }
        Ok(released)
    }

    async fn hints(&self, _outboxes: &[Outbox]) -> Result<Option<mpsc::Receiver<String>>> {
        Ok(None)
    }
}

impl MysqlStore {
    pub(super) async fn observe_horizon(&self, outbox: &Outbox, cursor: &mut Cursor) -> Result<()> {
        if cursor.observed_at.is_some_and(|at| at.elapsed() < HORIZON_EVERY) {
            return Ok(());
        }
        // Taken before the replies, which may wait here while this process is suspended.
        let looked_at = Instant::now();
        let last_id: i64 =
            sqlx::query_scalar(outbox.sql(sql!("sql/horizon.sql", "horizon_last_id")))
                .fetch_one(&self.pool)
                .await?;
        cursor.notice_last_id(last_id)?;
        let now = Instant::now();
        if let Some(writers) = self.open_writers().await? {
            cursor.horizon.observe_after(HORIZON_LAG, now, last_id, writers);
        }
        cursor.observed_at = Some(looked_at);
        Ok(())
    }

    /// Begins a transaction that holds the relay's lease until its end; `None` if another relay
    /// took over before.
    pub(super) async fn begin_held(
        &self,
        lease: &Lease,
    ) -> Result<Option<Transaction<'static, MySql>>> {
        let mut tx = self.begin().await?;
        let epoch: Option<i64> = sqlx::query_scalar(sql!("sql/lease.sql", "lease_hold"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&mut *tx)
            .await?;
        Ok(epoch.map(|_| tx))
    }

    /// Returns the last id of the next step of a walk over the table.
    pub(super) async fn next_step(&self, outbox: &Outbox, from: i64) -> Result<Option<i64>> {
        Ok(sqlx::query_scalar(outbox.sql(sql!("sql/horizon.sql", "next_id_step")))
            .bind(from)
            .bind(WALK_ROWS)
            .fetch_one(&self.pool)
            .await?)
    }
}

fn death_rows(dead: &[Death]) -> Vec<SettleRow<'_>> {
    let row = |d: &Death| {
        let message = fit(&d.message, limits::ERROR_MESSAGE_CHARS_MAX);
        let detail = d.detail.as_deref().map(|text| fit(text, limits::ERROR_DETAIL_CHARS_MAX));
        let attempted = i32::from(d.attempted);
        let kind = fingerprint(d.reason, &d.message);
        let reason = d.reason.as_str();
        json!([d.id, d.version, reason, message, detail, attempted, kind]).to_string()
    };
    dead.iter().map(|d| SettleRow::new(d.id, &d.event_id, row(d))).collect()
}

impl EventRow for MySqlRow {
    fn identity(&self, at: usize) -> Read<String> {
        self.try_get(at)
    }
    fn text(&self, at: usize) -> Read<String> {
        self.try_get(at)
    }
    fn text_or_none(&self, at: usize) -> Read<Option<String>> {
        self.try_get(at)
    }
    fn json(&self, at: usize) -> Read<Option<String>> {
        self.try_get(at)
    }
    fn count(&self, at: usize) -> Read<i32> {
        self.try_get(at)
    }
    fn count_or_none(&self, at: usize) -> Read<Option<i32>> {
        self.try_get(at)
    }
    fn long(&self, at: usize) -> Read<i64> {
        self.try_get(at)
    }
    fn time(&self, at: usize) -> Read<DateTime<Utc>> {
        time(self, at)
    }
    fn time_or_none(&self, at: usize) -> Read<Option<DateTime<Utc>>> {
        time_or_none(self, at)
    }
}
