//! The simulated database: tables, open transactions, relays and lanes. Each method is one
//! transaction; a clone is a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use postrider_store::{
    ClaimMode, Event, Key, LANES, Lane, LaneRow, Lease, Mode, RelayPulse, Serving, StoreError,
};

/// Time since the start of the run, on the database's clock.
pub(crate) type Time = Duration;

/// Number of an event in a run; the event id contains it.
pub(crate) type Number = u64;

/// A live row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) number: Number,
    pub(crate) key: usize,
    pub(crate) created_at: Time,
    pub(crate) expires_at: Option<Time>,
    pub(crate) processing: bool,
    pub(crate) marked: bool,
    pub(crate) retry_count: i32,
    pub(crate) crash_count: i32,
    pub(crate) next_retry_at: Option<Time>,
    pub(crate) last_failed_at: Option<Time>,
    pub(crate) locked_by: Option<String>,
    pub(crate) locked_at: Time,
    pub(crate) version: i64,
}

impl Row {
    pub(crate) fn new(number: Number, key: usize, created_at: Time) -> Self {
        Self {
            number,
            key,
            created_at,
            expires_at: None,
            processing: false,
            marked: false,
            retry_count: 0,
            crash_count: 0,
            next_retry_at: None,
            last_failed_at: None,
            locked_by: None,
            locked_at: Time::ZERO,
            version: 0,
        }
    }

    /// Frees the row for the next claim.
    pub(crate) fn free(&mut self, due_at: Time) {
        self.processing = false;
        self.locked_by = None;
        self.next_retry_at = Some(due_at);
        self.version += 1;
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.next_retry_at.is_none_or(|at| at <= now)
    }
}

/// A transaction that holds ids and has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) name: u64,
    pub(crate) rows: Vec<(i64, Row)>,
    pub(crate) prepared: bool,
    /// The server has been restarted since.
    pub(crate) recovered: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LaneRecord {
    pub(crate) owner: Option<String>,
    pub(crate) version: i64,
    pub(crate) crash_count: i32,
    pub(crate) flight_to: Option<i64>,
    pub(crate) suspect_id: Option<i64>,
}

/// An outbox.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) mode: Mode,
    pub(crate) last_id: i64,
    pub(crate) rows: BTreeMap<i64, Row>,
    pub(crate) open: Vec<Transaction>,
    pub(crate) lanes: Vec<LaneRecord>,
    pub(crate) parked: BTreeSet<Key>,
    /// The ledger: rows that were committed, and rows that left.
    pub(crate) appended: u64,
    pub(crate) delivered: u64,
    pub(crate) dead: BTreeSet<Number>,
}

impl Table {
    pub(crate) fn new(claim: ClaimMode) -> Self {
        Self {
            mode: Mode { claim, epoch: 1 },
            last_id: 0,
            rows: BTreeMap::new(),
            open: Vec::new(),
            lanes: vec![LaneRecord::default(); usize::from(LANES)],
            parked: BTreeSet::new(),
            appended: 0,
            delivered: 0,
            dead: BTreeSet::new(),
        }
    }

    pub(crate) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// Returns the row to settle, if it is unchanged and the relay holds it or no relay does.
    pub(crate) fn held(
        &mut self,
        lease: &Lease,
        id: i64,
        version: i64,
        event_id: &str,
    ) -> Option<&mut Row> {
        let is_ours = |row: &Row| {
            row.version == version
                && identity(row.number) == event_id
                && !row.marked
                && row.locked_by.as_ref().is_none_or(|owner| *owner == lease.relay_id)
        };
        self.rows.get_mut(&id).filter(|row| is_ours(row))
    }
}

/// A registered relay.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) epoch: i64,
    pub(crate) heartbeat: i64,
    pub(crate) fenced: bool,
    pub(crate) serving: Vec<Serving>,
    pub(crate) since: Time,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Database {
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) relays: BTreeMap<String, Registered>,
    /// Counters that number transactions and commits.
    pub(crate) transactions: u64,
    pub(crate) commits: u64,
    /// Number of server starts, on which the name of a prepared transaction depends.
    pub(crate) starts: u64,
}

impl Database {
    pub(crate) fn table(&mut self, outbox: &str) -> Result<&mut Table, StoreError> {
        let missing = || StoreError::Schema(format!("no table for outbox {outbox}"));
        self.tables.get_mut(outbox).ok_or_else(missing)
    }

    /// Checks the lease. Every write of a relay does so in its transaction.
    pub(crate) fn check_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        match self.relays.get(&lease.relay_id) {
            Some(relay) if relay.epoch == lease.epoch && !relay.fenced => Ok(()),
            _ => Err(StoreError::LeaseLost),
        }
    }

    /// Checks that the server has not been restarted since the session began.
    pub(crate) fn check_session(&self, starts: u64) -> Result<(), StoreError> {
        match self.starts == starts {
            true => Ok(()),
            false => Err(StoreError::Unavailable(sqlx::Error::WorkerCrashed)),
        }
    }

    pub(crate) fn lives(&self, relay: &str) -> bool {
        self.relays.get(relay).is_some_and(|relay| !relay.fenced)
    }

    pub(crate) fn pulses(&self, now: Time) -> Vec<RelayPulse> {
        let pulse = |(id, relay): (&String, &Registered)| RelayPulse {
            relay_id: id.clone(),
            epoch: relay.epoch,
            heartbeat: relay.heartbeat,
            fenced: relay.fenced,
            host: String::new(),
            serving: relay.serving.clone(),
            age: now.saturating_sub(relay.since),
        };
        self.relays.iter().map(pulse).collect()
    }

    /// Returns the names of a table's open transactions in the server's list of locks.
    pub(crate) fn writers(&self, outbox: &str) -> BTreeSet<String> {
        let Some(table) = self.tables.get(outbox) else { return BTreeSet::new() };
        let name = |open: &Transaction| match open.recovered {
            // PostgreSQL's name for a transaction that it found prepared at its start.
            true => format!("-1/{}", open.name),
            false => format!("3/{}", open.name),
        };
        table.open.iter().filter(|open| !open.rows.is_empty()).map(name).collect()
    }

    /// Restarts the server: open transactions that are not prepared are rolled back.
    pub(crate) fn restart(&mut self) {
        self.starts += 1;
        for table in self.tables.values_mut() {
            table.open.retain(|open| open.prepared);
            table.open.iter_mut().for_each(|open| open.recovered = true);
        }
    }
}

/// Returns the event id for a number.
pub(crate) fn identity(number: Number) -> String {
    uuid::Uuid::from_u128(u128::from(number)).to_string()
}

/// Returns the number in an event id.
pub(crate) fn number_of(event_id: &str) -> Number {
    let id = uuid::Uuid::parse_str(event_id).unwrap_or_default();
    Number::try_from(id.as_u128()).unwrap_or_default()
}

pub(crate) fn key_of(key: usize) -> Key {
    Key { aggregate_type: "key".to_owned(), aggregate_id: key.to_string() }
}

/// Returns the lane of a key. Keys are spread so that two may share a lane.
pub(crate) fn lane_of(key: usize) -> u8 {
    u8::try_from(key * 29 / 2 % usize::from(LANES)).unwrap_or_default()
}

fn at(time: Time) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + time
}

/// Builds the event that a claim or read returns.
pub(crate) fn event_of(id: i64, row: &Row, now: Time) -> Event {
    let key = key_of(row.key);
    Event {
        id,
        event_id: identity(row.number),
        aggregate_type: key.aggregate_type,
        aggregate_id: key.aggregate_id,
        event_type: "Simulated".to_owned(),
        created_at: at(row.created_at),
        expires_at: row.expires_at.map(at),
        retry_count: row.retry_count,
        crash_count: row.crash_count,
        last_failed_at: row.last_failed_at.map(at),
        claimed_at: at(now),
        version: row.version,
        ..Event::default()
    }
}

pub(crate) fn lane_row(id: i64, row: &Row, now: Time) -> LaneRow {
    LaneRow {
        event: event_of(id, row, now),
        lane: lane_of(row.key),
        due_in: row.next_retry_at.map_or(Duration::ZERO, |at| at.saturating_sub(now)),
        busy: row.processing,
    }
}

pub(crate) fn lane(number: usize, record: &LaneRecord) -> Lane {
    Lane {
        lane: u8::try_from(number).unwrap_or_default(),
        version: record.version,
        crash_count: record.crash_count,
        flight_to: record.flight_to,
    }
}
