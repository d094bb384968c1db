//! The simulated store: the operations that a relay uses while it works.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::DateTime;
use postrider::Outbox;
use postrider_store::{
    Capabilities, ClaimLimit, Claimed, Cursor, DeadReason, Death, Deferral, Delivery, Event,
    Failure, Lease, MovedLetter, OnSuccess, Recovery, RelayIdentity, RelayPulse, Result,
    SUSPECT_CRASHES, Serving, Settled, Store, StoreKind,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::database::{Registered, Row, Table, Time, event_of};
use crate::scenario::HorizonKind;
use crate::sink::DOWN;
use crate::world::{Process, State, World, away};

/// Interval at which a claim starts from the beginning of the table.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Minimum interval between observations of the horizon, and the minimum age of an observation if
/// the list lags.
const HORIZON_EVERY: Duration = Duration::from_millis(50);
const HORIZON_LAG: Duration = Duration::from_secs(1);

/// The store as one process sees it.
pub(crate) struct SimulatedStore {
    pub(crate) world: Arc<World>,
    pub(crate) process: Arc<Process>,
}

impl SimulatedStore {
    pub(crate) async fn call<T>(
        &self,
        work: impl FnOnce(&mut State, Time) -> Result<T>,
    ) -> Result<T> {
        self.world.call(&self.process, work).await
    }

    /// Observes open writers like the real stores: the last id first, then the list. Returns the
    /// number of server starts, because a session ends with its server.
    pub(crate) async fn observe(&self, outbox: &Outbox, cursor: &mut Cursor) -> Result<u64> {
        if cursor.observed_at.is_some_and(|at| at.elapsed() < HORIZON_EVERY) {
            // The stores take their session first, and wait with it for a server that is away.
            let (now, state) = (self.world.now(), self.world.state());
            return if now < state.away_until { Err(away()) } else { Ok(state.database.starts) };
        }
        let (name, looked_at) = (outbox.name().to_owned(), Instant::now());
        let (last_id, starts, timeline) = self
            .call(|state, _| {
                let (starts, timeline) = (state.database.starts, state.timeline);
                Ok((state.database.table(&name)?.last_id, starts, timeline))
            })
            .await?;
        let started_at = DateTime::UNIX_EPOCH + Duration::from_secs(starts + 1_000 * timeline);
        if !cursor.knows_server(started_at) {
            cursor.notice_server(started_at, Some(timeline.to_string()))?;
        }
        cursor.notice_last_id(last_id)?;
        let writers = self
            .call(|state, _| {
                state.database.check_session(starts)?;
                Ok(state.database.writers(&name))
            })
            .await?;
        match self.world.scenario.horizon {
            HorizonKind::AgedList => {
                cursor.horizon.observe_after(HORIZON_LAG, Instant::now(), last_id, writers);
            }
            HorizonKind::List | HorizonKind::OneWriter => cursor.horizon.observe(last_id, writers),
        }
        cursor.observed_at = Some(looked_at);
        Ok(starts)
    }

    /// Settles rows that are unchanged since they were read, and that the relay or no relay holds.
    async fn settle<'a, T>(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        items: &'a [T],
        of: impl Fn(&'a T) -> (i64, i64, &'a str),
        apply: impl Fn(&mut State, &str, i64, &'a T, Time),
    ) -> Result<Settled> {
        self.call(|state, now| {
            state.database.check_lease(lease)?;
            let mut rows = 0;
            for item in items {
                let (id, version, event_id) = of(item);
                let table = state.database.table(outbox.name())?;
                if table.held(lease, id, version, event_id).is_some() {
                    apply(state, outbox.name(), id, item, now);
                    rows += 1;
                }
            }
            Ok(Settled { rows })
        })
        .await
    }

    fn row<'a>(state: &'a mut State, outbox: &str, id: i64) -> Option<&'a mut Row> {
        state.database.tables.get_mut(outbox)?.rows.get_mut(&id)
    }

    /// Removes a delivered row, which must have arrived.
    fn remove_delivered(state: &mut State, outbox: &str, id: i64, now: Time) {
        let Some(table) = state.database.tables.get_mut(outbox) else { return };
        let Some(row) = table.rows.remove(&id) else { return };
        table.delivered += 1;
        state.checker.note(now, || format!("settled {outbox} #{id}"));
        if state.checker.known(outbox, row.number).received == 0 {
            let seen = format!("#{id} was settled as delivered and never arrived");
            state.checker.violated("nothing is lost", seen);
        }
    }

    fn remove_dead(&self, state: &mut State, outbox: &str, death: &Death, now: Time) {
        let Some(table) = state.database.tables.get_mut(outbox) else { return };
        let Some(row) = table.rows.remove(&death.id) else { return };
        table.dead.insert(row.number);
        state.checker.note(now, || format!("dead {outbox} #{}: {:?}", death.id, death.reason));
        let behaviour = state.behaviours.get(&row.number).copied().unwrap_or_default();
        let known = state.checker.known(outbox, row.number);
        known.dead = true;
        let scenario = &self.world.scenario;
        let deserved = match death.reason {
            DeadReason::Crash => behaviour.kills,
            DeadReason::Expired => row.expires_at.is_some(),
            DeadReason::Rejected => behaviour.rejected,
            DeadReason::Exhausted => scenario.failures || scenario.sink_faults,
            _ => false,
        };
        if !deserved {
            let seen = format!("#{} is a dead letter: {:?}", death.id, death.reason);
            state.checker.violated("no event dies without a cause", seen);
        }
    }

    /// Checks a spent attempt. An outage spends none; one attempt may be charged with it, if the
    /// destination accepted something else since the attempt before.
    fn check_charge(&self, state: &mut State, outbox: &str, failure: &Failure) {
        let Some(row) = Self::row(state, outbox, failure.id).map(|row| row.clone()) else { return };
        if !failure.error.contains(DOWN) {
            return;
        }
        let place = self.world.scenario.destination_of(row.key, row.number);
        let Some(outage) = state.destinations[place].down else { return };
        if !state.checker.known(outbox, row.number).charged_in.insert(outage) {
            let seen = format!("#{} was charged twice in outage {outage}", failure.id);
            state.checker.violated("an outage spends no attempts", seen);
        }
    }
}

#[async_trait]
impl Store for SimulatedStore {
    fn kind(&self) -> StoreKind {
        StoreKind::Postgres
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            concurrent_writers: self.world.scenario.horizon != HorizonKind::OneWriter,
            skips_duplicates: true,
            serialization_failures: false,
            notifies: false,
            shares_lanes: true,
        }
    }

    async fn register(&self, relay: &RelayIdentity) -> Result<Lease> {
        let process = Arc::clone(&self.process);
        self.call(|state, now| {
            let serving = relay.serving.clone();
            let registered =
                Registered { epoch: 1, heartbeat: 0, fenced: false, serving, since: now };
            state.database.relays.insert(relay.id.clone(), registered);
            process.registered(&relay.id);
            state.checker.note(now, || "registered".to_owned());
            Ok(Lease { relay_id: relay.id.clone(), epoch: 1 })
        })
        .await
    }

    async fn heartbeat(&self, lease: &Lease, serving: &[Serving]) -> Result<Vec<RelayPulse>> {
        let process = Arc::clone(&self.process);
        self.call(|state, now| {
            state.database.check_lease(lease)?;
            process.registered(&lease.relay_id);
            if let Some(relay) = state.database.relays.get_mut(&lease.relay_id) {
                relay.heartbeat += 1;
                relay.serving = serving.to_vec();
            }
            Ok(state.database.pulses(now))
        })
        .await
    }

    async fn relays(&self) -> Result<Vec<RelayPulse>> {
        self.call(|state, now| Ok(state.database.pulses(now))).await
    }

    async fn fence(&self, pulse: &RelayPulse) -> Result<bool> {
        self.call(|state, now| {
            let Some(relay) = state.database.relays.get_mut(&pulse.relay_id) else {
                return Ok(false);
            };
            if relay.heartbeat != pulse.heartbeat || relay.epoch != pulse.epoch {
                return Ok(relay.fenced);
            }
            relay.fenced = true;
            relay.epoch += 1;
            state.checker.note(now, || "fenced".to_owned());
            Ok(true)
        })
        .await
    }

    async fn retire(&self, lease: &Lease) -> Result<()> {
        self.call(|state, _| {
            state.database.check_lease(lease)?;
            state.database.relays.remove(&lease.relay_id);
            Ok(())
        })
        .await
    }

    async fn claim(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<Claimed> {
        cursor.sweep_if_due(SWEEP_EVERY);
        let session = self.observe(outbox, cursor).await?;
        let closed_until = cursor.horizon.closed_until();
        let (low, waiting_max) = (cursor.low, cursor.waiting_limit(limit.rows) as usize);
        let (events, fresh, room) = self
            .call(|state, now| {
                state.database.check_session(session)?;
                state.database.check_lease(lease)?;
                let table = state.database.table(outbox.name())?;
                let free =
                    |row: &Row| !row.processing && !row.marked && row.crash_count < SUSPECT_CRASHES;
                let waiting = table
                    .rows
                    .iter()
                    .filter(|(_, row)| free(row) && row.next_retry_at.is_some() && row.is_due(now));
                let mut ids: Vec<i64> = waiting.map(|(id, _)| *id).take(waiting_max).collect();
                let room = limit.rows as usize - ids.len();
                let fresh = table.rows.range(low + 1..);
                let fresh = fresh.filter(|(_, row)| free(row) && row.next_retry_at.is_none());
                let fresh: Vec<i64> = fresh.map(|(id, _)| *id).take(room).collect();
                ids.extend(&fresh);
                ids.sort_unstable();
                let events = ids.iter().map(|id| take(table, *id, lease, now)).collect::<Vec<_>>();
                state.checker.note(now, || format!("claimed {ids:?}"));
                let full = events.len() >= limit.rows as usize;
                Ok((Claimed { events, full }, fresh, room))
            })
            .await?;
        cursor.saw(events.events.last().map(|event| event.id), false);
        // Without room, there was no search.
        let scanned_to = (fresh.len() == room).then(|| fresh.last().copied().unwrap_or(low));
        cursor.advance(closed_until, scanned_to);
        cursor.fresh_was_empty = fresh.is_empty() && room > 0;
        Ok(events)
    }

    async fn claim_suspect(&self, outbox: &Outbox, lease: &Lease) -> Result<Option<Event>> {
        self.call(|state, now| {
            state.database.check_lease(lease)?;
            let table = state.database.table(outbox.name())?;
            let suspects = table.rows.iter().filter(|(_, row)| is_suspect(row, now));
            let id = suspects.min_by_key(|(id, row)| (row.crash_count, **id)).map(|(id, _)| *id);
            Ok(id.map(|id| take(table, id, lease, now)))
        })
        .await
    }

    async fn has_suspect(&self, outbox: &Outbox) -> Result<bool> {
        self.call(|state, now| {
            let table = state.database.table(outbox.name())?;
            Ok(table.rows.values().any(|row| is_suspect(row, now)))
        })
        .await
    }

    async fn settle_delivered(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        _: OnSuccess,
    ) -> Result<Settled> {
        let of: fn(&Delivery) -> (i64, i64, &str) =
            |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, delivered, of, |state, outbox, id, _, now| {
            Self::remove_delivered(state, outbox, id, now);
        })
        .await
    }

    async fn fan_out(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        _: OnSuccess,
    ) -> Result<Settled> {
        let of: fn(&Delivery) -> (i64, i64, &str) =
            |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, delivered, of, |state, outbox, id, _, now| {
            let Some(row) = Self::row(state, outbox, id).map(|row| row.clone()) else { return };
            state.database.commits += 1;
            let commit = state.database.commits;
            for child in children {
                let Ok(table) = state.database.table(child.name()) else { continue };
                let copy = table.next_id();
                let mut copied = Row::new(row.number, row.key, row.created_at);
                copied.expires_at = row.expires_at;
                table.rows.insert(copy, copied);
                table.appended += 1;
                state.checker.inserted(child.name(), row.number, row.key, copy);
                state.checker.known(child.name(), row.number).commit = Some(commit);
            }
            state.checker.received(now, outbox, row.number);
            Self::remove_delivered(state, outbox, id, now);
        })
        .await
    }

    async fn settle_failed(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        failed: &[Failure],
    ) -> Result<Settled> {
        let of: fn(&Failure) -> (i64, i64, &str) =
            |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, failed, of, |state, outbox, id, failure, now| {
            self.check_charge(state, outbox, failure);
            let Some(row) = Self::row(state, outbox, id) else { return };
            row.retry_count += 1;
            row.crash_count = 0;
            row.last_failed_at = Some(now);
            row.free(now + failure.delay);
            state.checker.note(now, || format!("failed {outbox} #{id}"));
        })
        .await
    }

    async fn settle_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let of: fn(&Death) -> (i64, i64, &str) = |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, dead, of, |state, outbox, _, death, now| {
            self.remove_dead(state, outbox, death, now);
        })
        .await
    }

    async fn mark_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled> {
        let of: fn(&Death) -> (i64, i64, &str) = |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, dead, of, |state, outbox, id, _, _| {
            if let Some(row) = Self::row(state, outbox, id) {
                row.marked = true;
                row.version += 1;
            }
        })
        .await
    }

    async fn release(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        deferred: &[Deferral],
    ) -> Result<Settled> {
        let of: fn(&Deferral) -> (i64, i64, &str) =
            |row| (row.id, row.version, row.event_id.as_str());
        self.settle(outbox, lease, deferred, of, |state, outbox, id, deferral, now| {
            let Some(row) = Self::row(state, outbox, id) else { return };
            if deferral.error.is_some() {
                row.crash_count = 0;
                row.last_failed_at = Some(now);
            }
            row.free(now + deferral.delay);
            state.checker.note(now, || format!("released {outbox} #{id}"));
        })
        .await
    }

    async fn release_lost(&self, outbox: &Outbox, lease: &Lease, in_flight: &[i64]) -> Result<u64> {
        self.call(|state, now| {
            state.database.check_lease(lease)?;
            let table = state.database.table(outbox.name())?;
            let mut released = 0;
            for (id, row) in &mut table.rows {
                let ours = row.processing && row.locked_by.as_ref() == Some(&lease.relay_id);
                if ours && !in_flight.contains(id) {
                    row.free(now);
                    released += 1;
                }
            }
            Ok(released)
        })
        .await
    }

    async fn hints(&self, _: &[Outbox]) -> Result<Option<mpsc::Receiver<String>>> {
        Ok(None)
    }
}

/// Like `recover` in the SQL of each store.
fn wait_after_crash(crash_count: i32) -> Duration {
    match u32::try_from(crash_count - SUSPECT_CRASHES) {
        Ok(crashes_alone) => Duration::from_secs(5) * (crashes_alone + 1).min(3),
        Err(_) => Duration::ZERO,
    }
}

fn is_suspect(row: &Row, now: Time) -> bool {
    !row.processing && !row.marked && row.crash_count >= SUSPECT_CRASHES && row.is_due(now)
}

/// Claims one row.
fn take(table: &mut Table, id: i64, lease: &Lease, now: Time) -> Event {
    let row = table.rows.entry(id).or_insert_with(|| Row::new(0, 0, now));
    row.processing = true;
    row.locked_by = Some(lease.relay_id.clone());
    row.locked_at = now;
    row.version += 1;
    event_of(id, row, now)
}

impl SimulatedStore {
    pub(crate) async fn recover_rows(
        &self,
        outbox: &Outbox,
        recovery: &Recovery<'_>,
    ) -> Result<u64> {
        self.call(|state, now| {
            let table = state.database.table(outbox.name())?;
            let mut recovered = 0;
            for (_, row) in table.rows.iter_mut().filter(|(_, row)| row.processing) {
                let owner = row.locked_by.clone().unwrap_or_default();
                let stalled = now.saturating_sub(row.locked_at) > recovery.stalled_after;
                if recovery.dead.contains(&owner) || (stalled && !recovery.live.contains(&owner)) {
                    row.free(now + wait_after_crash(row.crash_count));
                    row.crash_count += 1;
                    recovered += 1;
                }
            }
            Ok(recovered)
        })
        .await
    }

    pub(crate) async fn move_marked_rows(&self, outbox: &Outbox) -> Result<Vec<MovedLetter>> {
        self.call(|state, now| {
            let table = state.database.table(outbox.name())?;
            let marked = table.rows.iter().filter(|(_, row)| row.marked);
            let letter = |(id, row): (&i64, &Row)| MovedLetter {
                original_id: *id,
                event_id: event_of(*id, row, now).event_id,
            };
            let moved: Vec<MovedLetter> = marked.map(letter).collect();
            for letter in &moved {
                table.dead.extend(table.rows.remove(&letter.original_id).map(|row| row.number));
            }
            Ok(moved)
        })
        .await
    }
}
