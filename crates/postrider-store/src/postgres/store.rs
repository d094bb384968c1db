//! The relay's operations: leases, claim, settle.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::internal::millis;
use postrider::{Outbox, Transience, internal::fit, limits, transience};
use sqlx::postgres::{PgListener, PgRow};
use sqlx::{PgConnection, Row};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::PostgresStore;
use super::json::Jsonb;
use super::settle::{identity, settle_each, settled};
use super::tid::Tid;
use super::time::{time, time_or_none};
use crate::columns::{self, AFTER_EVENT, EventRow, Read, sql};
use crate::contract::{
    Capabilities, ClaimLimit, Claimed, Cursor, Death, Deferral, Delivery, Failure, Lease,
    OnSuccess, RelayIdentity, RelayPulse, Result, Serving, Settled, Store, StoreKind, check_copies,
    parse_serving, serving_text,
};
use crate::{Event, StoreError, fingerprint};

/// Minimum interval between observations of the horizon, which are two small catalog queries.
const HORIZON_EVERY: Duration = Duration::from_millis(50);
/// Interval at which a claim starts from the beginning of the table.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Rows per step of a walk over the table.
pub(super) const WALK_ROWS: i64 = 20_000;
/// Number of hints buffered for a busy relay; more would not tell it anything new.
const HINTS_MAX: usize = 16;

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> StoreKind {
        StoreKind::Postgres
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            concurrent_writers: true,
            skips_duplicates: true,
            serialization_failures: true,
            notifies: true,
            shares_lanes: true,
        }
    }

    async fn register(&self, relay: &RelayIdentity) -> Result<Lease> {
        let epoch = sqlx::query_scalar(sql!("sql/lease.sql", "register"))
            .bind(&relay.id)
            .bind(&relay.host)
            .bind(&relay.version)
            .bind(serving_text(&relay.serving))
            .fetch_one(&self.pool)
            .await?;
        Ok(Lease { relay_id: relay.id.clone(), epoch })
    }

    async fn heartbeat(&self, lease: &Lease, serving: &[Serving]) -> Result<Vec<RelayPulse>> {
        let beat = sqlx::query(sql!("sql/lease.sql", "heartbeat"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(serving_text(serving))
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
        let mut session = self.sessions.take().await?;
        observe_horizon(&mut session, outbox, cursor).await?;
        cursor.sweep_if_due(SWEEP_EVERY);
        let closed_until = cursor.horizon.closed_until();
        let waiting_limit = cursor.waiting_limit(limit.rows);
        let (mut waiting_found, mut fresh_found, mut last_fresh) = (0_i64, 0_i64, None);
        // Rows are decoded while the server still sends: the next claim waits for it.
        let mut events = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(cursor.low)
            .bind(i64::from(limit.rows))
            .bind(i64::from(waiting_limit))
            .bind(i64::try_from(limit.bytes).unwrap_or(i64::MAX))
            .bind(i64::from(limit.share.of))
            .bind(i64::from(limit.share.index))
            .try_map(|row: PgRow| {
                let event = decode(&row)?;
                if row.try_get(AFTER_EVENT + 1)? {
                    last_fresh = last_fresh.max(Some(event.id));
                }
                (waiting_found, fresh_found) =
                    (row.try_get(AFTER_EVENT + 2)?, row.try_get(AFTER_EVENT + 3)?);
                Ok(event)
            })
            .fetch_all(&mut *session)
            .await?;
        session.give_back();
        events.sort_unstable_by_key(|event| event.id);

        let cut = i64::try_from(events.len()).unwrap_or(i64::MAX) < waiting_found + fresh_found;
        // A batch that was filled by waiting rows left no room to search for fresh ones: nothing
        // was scanned, and whether there are any is unknown.
        let fresh_room = i64::from(limit.rows) - waiting_found;
        let fresh_full = fresh_found == fresh_room;
        let scanned_to = (cut || fresh_full).then(|| last_fresh.unwrap_or(cursor.low));
        cursor.saw(events.last().map(|event| event.id), false);
        cursor.advance(closed_until, scanned_to);
        cursor.fresh_was_empty = fresh_found == 0 && fresh_room > 0;
        let full = cut || fresh_full || waiting_found == i64::from(waiting_limit);
        Ok(Claimed { full: full && !events.is_empty(), events })
    }

    async fn claim_suspect(&self, outbox: &Outbox, lease: &Lease) -> Result<Option<Event>> {
        let row = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_suspect")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&self.pool)
            .await?;
        Ok(row.as_ref().map(decode).transpose()?)
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
        match delivered.iter().any(|d| d.response.is_some()) {
            true => self.settle_answered(outbox, lease, delivered, on_success).await,
            false => self.settle_plain(outbox, lease, delivered, on_success).await,
        }
    }

    async fn fan_out(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let mut tx = self.begin().await?;
        let held: Vec<i64> = sqlx::query_scalar(outbox.sql(sql!("sql/settle.sql", "fan_out_hold")))
            .bind(&lease.relay_id)
            .bind(delivered.iter().map(|d| d.id).collect::<Vec<_>>())
            .bind(delivered.iter().map(|d| d.version).collect::<Vec<_>>())
            .bind(delivered.iter().map(|d| identity(&d.event_id)).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
        let held: BTreeSet<i64> = held.into_iter().collect();
        let delivered: Vec<&Delivery> =
            delivered.iter().filter(|row| held.contains(&row.id)).collect();
        for (branch, child) in children.iter().enumerate() {
            let taken = delivered.iter().filter(|row| row.goes_to(branch));
            let ids: Vec<i64> = taken.map(|row| row.id).collect();
            if ids.is_empty() {
                continue;
            }
            let taken = ids.len();
            let copied = sqlx::query(outbox.sql_to(child, sql!("sql/settle.sql", "fan_out_copy")))
                .bind(ids)
                .execute(&mut *tx)
                .await?;
            check_copies(child, taken, copied.rows_affected())?;
        }
        // Without the lease nothing is committed, including the copies.
        let settled = settle_each(&mut *tx, outbox, lease, &delivered, on_success).await?;
        tx.commit().await?;
        Ok(settled)
    }

    async fn settle_failed(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        failed: &[Failure],
    ) -> Result<Settled> {
        let row = sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_failed")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(failed.iter().map(|f| f.id).collect::<Vec<_>>())
            .bind(failed.iter().map(|f| f.version).collect::<Vec<_>>())
            .bind(failed.iter().map(|f| millis(f.delay)).collect::<Vec<_>>())
            .bind(failed.iter().map(|f| last_error(&f.error)).collect::<Vec<_>>())
            .bind(failed.iter().map(|f| millis(f.took)).collect::<Vec<_>>())
            .bind(failed.iter().map(|f| identity(&f.event_id)).collect::<Vec<_>>())
            .fetch_one(&self.pool)
            .await?;
        settled(&row)
    }

    async fn settle_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        self.move_or_mark(outbox, lease, dead, sql!("sql/settle.sql", "settle_dead")).await
    }

    async fn mark_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        self.move_or_mark(outbox, lease, dead, sql!("sql/settle.sql", "mark_dead")).await
    }

    async fn release(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        deferred: &[Deferral],
    ) -> Result<Settled> {
        let row = sqlx::query(outbox.sql(sql!("sql/claim.sql", "release")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(deferred.iter().map(|d| d.id).collect::<Vec<_>>())
            .bind(deferred.iter().map(|d| d.version).collect::<Vec<_>>())
            .bind(deferred.iter().map(|d| millis(d.delay)).collect::<Vec<_>>())
            .bind(deferred.iter().map(|d| d.error.as_deref().map(last_error)).collect::<Vec<_>>())
            .bind(deferred.iter().map(|d| identity(&d.event_id)).collect::<Vec<_>>())
            .fetch_one(&self.pool)
            .await?;
        settled(&row)
    }

    async fn release_lost(&self, outbox: &Outbox, lease: &Lease, in_flight: &[i64]) -> Result<u64> {
        let (mut from, mut released) = (0, 0);
        while let Some(to) = self.next_step(outbox, from).await? {
            let step = sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "release_lost")))
                .bind(&lease.relay_id)
                .bind(lease.epoch)
                .bind(from)
                .bind(to)
                .bind(in_flight)
                .fetch_one(&self.pool)
                .await?;
            released += settled(&step)?.rows;
            from = to;
        }
        Ok(released)
    }

    async fn hints(&self, outboxes: &[Outbox]) -> Result<Option<mpsc::Receiver<String>>> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen_all(outboxes.iter().map(Outbox::table)).await?;
        let (sender, receiver) = mpsc::channel(HINTS_MAX);
        // Keeps reading even while the relay is busy: a listener that does not drain its socket
        // holds back vacuum for the whole database.
        tokio::spawn(async move {
            while !sender.is_closed() {
                tokio::select! {
                    () = sender.closed() => {}
                    hint = listener.recv() => match hint {
                        Ok(hint) => drop(sender.try_send(hint.channel().to_owned())),
                        // The listener reconnects by itself; polling continues in the meantime.
                        Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
                    },
                }
            }
        });
        Ok(Some(receiver))
    }
}

impl PostgresStore {
    async fn move_or_mark(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        dead: &[Death],
        statement: &'static str,
    ) -> Result<Settled> {
        let message = |d: &Death| fit(&d.message, limits::ERROR_MESSAGE_CHARS_MAX).into_owned();
        let detail = |d: &Death| {
            d.detail.as_ref().map(|text| fit(text, limits::ERROR_DETAIL_CHARS_MAX).into_owned())
        };
        let row = sqlx::query(outbox.sql(statement))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(dead.iter().map(|d| d.id).collect::<Vec<_>>())
            .bind(dead.iter().map(|d| d.version).collect::<Vec<_>>())
            .bind(dead.iter().map(|d| d.reason.as_str()).collect::<Vec<_>>())
            .bind(dead.iter().map(message).collect::<Vec<_>>())
            .bind(dead.iter().map(detail).collect::<Vec<_>>())
            .bind(dead.iter().map(|d| d.attempted).collect::<Vec<_>>())
            .bind(dead.iter().map(|d| fingerprint(d.reason, &d.message)).collect::<Vec<_>>())
            .bind(dead.iter().map(|d| identity(&d.event_id)).collect::<Vec<_>>())
            .fetch_one(&self.pool)
            .await?;
        settled(&row)
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

/// Observes the transactions that may still commit, if the last observation is old enough.
pub(super) async fn observe_horizon(
    session: &mut PgConnection,
    outbox: &Outbox,
    cursor: &mut Cursor,
) -> Result<()> {
    if cursor.observed_at.is_some_and(|at| at.elapsed() < HORIZON_EVERY) {
        return Ok(());
    }
    // Taken before the replies, which may wait here while this process is suspended.
    let looked_at = Instant::now();
    // Two statements, so that the second's view of the locks is newer than the first's of the ids.
    let (last_id, started_at, is_standby, counter): (i64, DateTime<Utc>, bool, i64) =
        sqlx::query_as(outbox.sql(sql!("sql/horizon.sql", "horizon_last_id")))
            .fetch_one(&mut *session)
            .await?;
    if !is_standby && !cursor.knows_server(started_at) {
        cursor.notice_server(started_at, timeline(session).await?)?;
    }
    cursor.notice_counter(counter)?;
    cursor.notice_last_id(last_id)?;
    let writers: Vec<String> =
        sqlx::query_scalar(outbox.sql(sql!("sql/horizon.sql", "horizon_writers")))
            .fetch_all(&mut *session)
            .await?;
    cursor.horizon.observe(last_id, writers.into_iter().collect::<BTreeSet<_>>());
    cursor.observed_at = Some(looked_at);
    Ok(())
}

/// Returns the server's timeline. `None` for services that speak PostgreSQL's protocol and have
/// none.
async fn timeline(session: &mut PgConnection) -> Result<Option<String>> {
    let answer = sqlx::query_scalar(sql!("sql/horizon.sql", "horizon_timeline"));
    match answer.fetch_one(session).await {
        Ok(timeline) => Ok(Some(timeline)),
        Err(error) if transience(&error) == Transience::Lasting => {
            tracing::debug!(%error, "the timeline of the server is not known");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn last_error(error: &str) -> String {
    fit(error, limits::LAST_ERROR_CHARS_MAX).into_owned()
}

/// Decodes an event and its position.
pub(super) fn decode(row: &PgRow) -> std::result::Result<Event, sqlx::Error> {
    let place = Some(row.try_get::<Tid, _>(AFTER_EVENT)?.0);
    Ok(Event { place, ..columns::event(row)? })
}

impl EventRow for PgRow {
    fn identity(&self, at: usize) -> Read<String> {
        Ok(self.try_get::<Uuid, _>(at)?.to_string())
    }
    fn text(&self, at: usize) -> Read<String> {
        self.try_get(at)
    }
    fn text_or_none(&self, at: usize) -> Read<Option<String>> {
        self.try_get(at)
    }
    fn json(&self, at: usize) -> Read<Option<String>> {
        Ok(self.try_get::<Option<Jsonb>, _>(at)?.map(|json| json.0))
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
