//! The relay's operations: leases, claim, settle.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use postrider::internal::plus;
use postrider::{Outbox, internal::fit, limits};
use serde_json::json;
use sqlx::{Row, Sqlite, SqliteConnection, Transaction};
use tokio::sync::mpsc;

use super::claim::decode;
use super::{On, ROWS_MAX, SqliteStore};
use crate::columns::sql;
use crate::contract::{
    Capabilities, ClaimLimit, Claimed, Cursor, Death, Deferral, Delivery, Failure, Lease,
    OnSuccess, RelayIdentity, RelayPulse, Result, Serving, Settled, Store, StoreKind, check_copies,
    parse_serving, serving_text,
};
use crate::{Event, StoreError, fingerprint};

/// Interval at which a claim starts from the beginning of the table.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> StoreKind {
        StoreKind::Sqlite
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            concurrent_writers: false,
            skips_duplicates: true,
            serialization_failures: false,
            notifies: false,
            shares_lanes: false,
        }
    }

    async fn register(&self, relay: &RelayIdentity) -> Result<Lease> {
        let epoch = sqlx::query_scalar(sql!("sql/lease.sql", "register"))
            .bind(&relay.id)
            .bind(&relay.host)
            .bind(&relay.version)
            .bind(serving_text(&relay.serving))
            .fetch_one(&self.writer)
            .await
            .on(self)?;
        Ok(Lease { relay_id: relay.id.clone(), epoch })
    }

    async fn heartbeat(&self, lease: &Lease, serving: &[Serving]) -> Result<Vec<RelayPulse>> {
        let beat = sqlx::query(sql!("sql/lease.sql", "heartbeat"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(serving_text(serving))
            .execute(&self.writer)
            .await
            .on(self)?;
        if beat.rows_affected() == 0 {
            return Err(StoreError::LeaseLost);
        }
        self.relays().await
    }

    async fn relays(&self) -> Result<Vec<RelayPulse>> {
        let rows =
            sqlx::query(sql!("sql/lease.sql", "pulses")).fetch_all(&self.readers).await.on(self)?;
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
            .await
            .on(self)?;
        let fenced = match found {
            Some((true, ..)) => true,
            Some((false, epoch, beat)) if (epoch, beat) == (pulse.epoch, pulse.heartbeat) => {
                sqlx::query(sql!("sql/lease.sql", "fence"))
                    .bind(&pulse.relay_id)
                    .execute(&mut *tx)
                    .await
                    .on(self)?;
                true
            }
            _ => false,
        };
        tx.commit().await.on(self)?;
        Ok(fenced)
    }

    async fn retire(&self, lease: &Lease) -> Result<()> {
        sqlx::query(sql!("sql/lease.sql", "retire"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn claim(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<Claimed> {
        cursor.sweep_if_due(SWEEP_EVERY);
        let limit = ClaimLimit { rows: limit.rows.min(ROWS_MAX), ..limit };
        let taken = loop {
            let taken = self.take(outbox, lease, limit, cursor).await?;
            // Nothing was found in this part of the table, but there is more. The write lock was
            // free in between.
            if !(taken.ids.is_empty() && taken.full) {
                break taken;
            }
        };
        if taken.ids.is_empty() {
            return Ok(Claimed::default());
        }
        let events = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_read")))
            .bind(&lease.relay_id)
            .bind(super::json(&taken.ids)?)
            .try_map(|row| decode(&row))
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        Ok(Claimed { full: taken.full && !events.is_empty(), events })
    }

    async fn claim_suspect(&self, outbox: &Outbox, lease: &Lease) -> Result<Option<Event>> {
        let row = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_suspect")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&self.writer)
            .await
            .on(self)?;
        Ok(row.as_ref().map(decode).transpose()?)
    }

    async fn has_suspect(&self, outbox: &Outbox) -> Result<bool> {
        sqlx::query_scalar(outbox.sql(sql!("sql/claim.sql", "has_suspect")))
            .fetch_one(&self.readers)
            .await
            .on(self)
    }

    async fn settle_delivered(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        // A read of lanes returns more rows than one short transaction may write.
        let mut rows = 0;
        for delivered in delivered.chunks(ROWS_MAX as usize) {
            let mut tx = self.begin_held(lease).await?;
            let rows_read = delivered.iter().map(|d| (d.id, d.version, &*d.event_id));
            let ids = self.find_own(&mut tx, outbox, lease, rows_read).await?;
            self.keep_responses(&mut tx, outbox, &ids, delivered).await?;
            rows += self.leave(&mut tx, outbox, &ids, on_success).await?;
            tx.commit().await.on(self)?;
        }
        Ok(Settled { rows })
    }

    async fn fan_out(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let mut rows = 0;
        for delivered in delivered.chunks(ROWS_MAX as usize) {
            let mut tx = self.begin_held(lease).await?;
            let rows_read = delivered.iter().map(|d| (d.id, d.version, &*d.event_id));
            let ids = self.find_own(&mut tx, outbox, lease, rows_read).await?;
            let held: Vec<i64> = serde_json::from_str(&ids).unwrap_or_default();
            let held: HashSet<i64> = held.into_iter().collect();
            for (branch, child) in children.iter().enumerate() {
                let takes = |row: &&Delivery| row.goes_to(branch) && held.contains(&row.id);
                let taken: Vec<i64> = delivered.iter().filter(takes).map(|row| row.id).collect();
                if taken.is_empty() {
                    continue;
                }
                let copy = outbox.sql_to(child, sql!("sql/settle.sql", "fan_out_copy"));
                let copied = sqlx::query(copy).bind(super::json(&taken)?).execute(&mut *tx).await;
                check_copies(child, taken.len(), copied.on(self)?.rows_affected())?;
            }
            rows += self.leave(&mut tx, outbox, &ids, on_success).await?;
            tx.commit().await.on(self)?;
        }
        Ok(Settled { rows })
    }

    async fn settle_failed(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        failed: &[Failure],
    ) -> Result<Settled> {
        let failures: Vec<_> = failed
            .iter()
            .map(|f| {
                json!({
                    "id": f.id, "version": f.version, "event_id": f.event_id,
                    "delay": plus(f.delay),
                    "error": last_error(&f.error),
                    "took_ms": i64::try_from(f.took.as_millis()).unwrap_or(i64::MAX),
                })
            })
            .collect();
        let failures = super::json(&failures)?;
        let mut tx = self.begin_held(lease).await?;
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_failed_note")))
            .bind(&lease.relay_id)
            .bind(&failures)
            .execute(&mut *tx)
            .await
            .on(self)?;
        let settled = sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_failed")))
            .bind(&lease.relay_id)
            .bind(&failures)
            .execute(&mut *tx)
            .await
            .on(self)?;
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_failed_trim")))
            .bind(&failures)
            .execute(&mut *tx)
            .await
            .on(self)?;
        tx.commit().await.on(self)?;
        Ok(Settled { rows: settled.rows_affected() })
    }

    async fn settle_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let deaths = deaths_json(dead)?;
        let mut tx = self.begin_held(lease).await?;
        let rows_read = dead.iter().map(|d| (d.id, d.version, &*d.event_id));
        let ids = self.find_own(&mut tx, outbox, lease, rows_read).await?;
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_dead")))
            .bind(&ids)
            .bind(deaths)
            .execute(&mut *tx)
            .await
            .on(self)?;
        let rows = self.record_and_remove(&mut tx, outbox, &ids, "dead").await?;
        tx.commit().await.on(self)?;
        Ok(Settled { rows })
    }

    async fn mark_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let statement = sql!("sql/settle.sql", "mark_dead");
        self.update_held(outbox, lease, statement, deaths_json(dead)?).await
    }

    async fn release(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        deferred: &[Deferral],
    ) -> Result<Settled> {
        let deferrals: Vec<_> = deferred
            .iter()
            .map(|d| {
                json!({
                    "id": d.id, "version": d.version, "event_id": d.event_id,
                    "delay": plus(d.delay),
                    "error": d.error.as_deref().map(last_error),
                })
            })
            .collect();
        let statement = sql!("sql/claim.sql", "release");
        self.update_held(outbox, lease, statement, super::json(&deferrals)?).await
    }

    async fn release_lost(&self, outbox: &Outbox, lease: &Lease, in_flight: &[i64]) -> Result<u64> {
        let in_flight = super::json(in_flight)?;
        let (mut from, mut released) = (0, 0);
        while let Some((to, ids)) = self.next_step(outbox, from).await? {
            let mut tx = self.begin_held(lease).await?;
            let step = sqlx::query(outbox.sql(sql!("sql/maintenance.sql", "release_lost")))
                .bind(&lease.relay_id)
                .bind(ids)
                .bind(&in_flight)
                .execute(&mut *tx)
                .await
                .on(self)?;
            tx.commit().await.on(self)?;
            released += step.rows_affected();
            from = to;
        }
        Ok(released)
    }

    /// SQLite cannot notify other processes; the relay polls.
    async fn hints(&self, _: &[Outbox]) -> Result<Option<mpsc::Receiver<String>>> {
        Ok(None)
    }
}

impl SqliteStore {
    /// Begins a writing transaction that holds the relay's lease until its end.
    pub(super) async fn begin_held(&self, lease: &Lease) -> Result<Transaction<'static, Sqlite>> {
        let mut tx = self.begin().await?;
        let held: bool = sqlx::query_scalar(sql!("sql/settle.sql", "held"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_one(&mut *tx)
            .await
            .on(self)?;
        if held { Ok(tx) } else { Err(StoreError::LeaseLost) }
    }

    /// Returns the ids, as JSON, of the given rows that are unchanged since they were claimed or
    /// read.
    async fn find_own<'a>(
        &self,
        connection: &mut SqliteConnection,
        outbox: &Outbox,
        lease: &Lease,
        rows: impl Iterator<Item = (i64, i64, &'a str)>,
    ) -> Result<String> {
        // A map: ids are ascending, like in the table, and unique.
        let rows = rows.map(|(id, version, event_id)| (id, format!("{version} {event_id}")));
        let rows = json!(rows.collect::<BTreeMap<i64, String>>()).to_string();
        sqlx::query_scalar(outbox.sql(sql!("sql/settle.sql", "settle_find")))
            .bind(&lease.relay_id)
            .bind(rows)
            .fetch_one(connection)
            .await
            .on(self)
    }

    /// Stores the answers of deliveries, if any, in those of their rows that have these ids (JSON).
    async fn keep_responses(
        &self,
        connection: &mut SqliteConnection,
        outbox: &Outbox,
        ids: &str,
        delivered: &[Delivery],
    ) -> Result<()> {
        let answered = delivered.iter().filter_map(|d| Some((d.id, d.response.as_deref()?)));
        let answered: Vec<(i64, &str)> = answered.collect();
        if answered.is_empty() {
            return Ok(());
        }
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_response")))
            .bind(ids)
            .bind(json!(answered).to_string())
            .execute(connection)
            .await
            .on(self)?;
        Ok(())
    }

    /// Removes rows with these ids (JSON) as delivered, to the archive if `on_success` says so.
    async fn leave(
        &self,
        connection: &mut SqliteConnection,
        outbox: &Outbox,
        ids: &str,
        on_success: OnSuccess,
    ) -> Result<u64> {
        if on_success == OnSuccess::Archive {
            sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_delivered_archive")))
                .bind(ids)
                .execute(&mut *connection)
                .await
                .on(self)?;
        }
        self.record_and_remove(connection, outbox, ids, "delivered").await
    }

    /// Adds the rows with these ids (JSON) to the ledger, removes them, and returns their number.
    pub(super) async fn record_and_remove(
        &self,
        connection: &mut SqliteConnection,
        outbox: &Outbox,
        ids: &str,
        kind: &str,
    ) -> Result<u64> {
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "record")))
            .bind(ids)
            .bind(kind)
            .execute(&mut *connection)
            .await
            .on(self)?;
        let removed = sqlx::query(outbox.sql(sql!("sql/settle.sql", "remove")))
            .bind(ids)
            .execute(connection)
            .await
            .on(self)?;
        Ok(removed.rows_affected())
    }

    /// Runs a settle that is one UPDATE, with the relay and the changes of the rows.
    async fn update_held(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        statement: &'static str,
        rows: String,
    ) -> Result<Settled> {
        let mut tx = self.begin_held(lease).await?;
        let settled = sqlx::query(outbox.sql(statement))
            .bind(&lease.relay_id)
            .bind(rows)
            .execute(&mut *tx)
            .await
            .on(self)?;
        tx.commit().await.on(self)?;
        Ok(Settled { rows: settled.rows_affected() })
    }

    /// Returns the next step of a walk over the rows that relays hold: its last id, and ids as
    /// JSON.
    pub(super) async fn next_step(
        &self,
        outbox: &Outbox,
        from: i64,
    ) -> Result<Option<(i64, String)>> {
        let row = sqlx::query(outbox.sql(sql!("sql/horizon.sql", "next_id_step")))
            .bind(from)
            .bind(ROWS_MAX)
            .fetch_one(&self.readers)
            .await
            .on(self)?;
        let to: Option<i64> = row.try_get(0)?;
        Ok(to.map(|to| Ok::<_, sqlx::Error>((to, row.try_get(1)?))).transpose()?)
    }
}

fn last_error(error: &str) -> String {
    fit(error, limits::LAST_ERROR_CHARS_MAX).into_owned()
}

fn deaths_json(dead: &[Death]) -> Result<String> {
    let deaths: Vec<_> = dead
        .iter()
        .map(|d| {
            json!({
                "id": d.id, "version": d.version, "event_id": d.event_id,
                "reason": d.reason.as_str(),
                "message": fit(&d.message, limits::ERROR_MESSAGE_CHARS_MAX),
                "detail": d.detail.as_ref().map(|t| fit(t, limits::ERROR_DETAIL_CHARS_MAX)),
                "attempted": i32::from(d.attempted),
                "fingerprint": fingerprint(d.reason, &d.message),
            })
        })
        .collect();
    super::json(&deaths)
}
