//! Everything outside the relays: database, destinations, faults, and the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_store::{Key, StoreError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::checker::Checker;
use crate::database::{Database, Number, Table, Time};
use crate::scenario::{Scenario, between};

/// The outbox that the writers append to.
pub(crate) const EVENTS: &str = "events";
/// The outbox that the events are fanned out to.
pub(crate) const BRANCH: &str = "branch";

/// Share of the store's calls that fail, before or after they took effect.
const STORE_ERRORS: f64 = 0.02;
/// Share of the calls that take seconds.
const SLOW_CALLS: f64 = 0.004;

/// How an event behaves at the sink.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Behaviour {
    pub(crate) rejected: bool,
    pub(crate) kills: bool,
    /// Number of attempts that fail before it is accepted.
    pub(crate) failures: u32,
}

/// A destination of the sink.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Destination {
    /// Number of the outage that it is in.
    pub(crate) down: Option<u64>,
}

/// State of the world; locked only briefly.
pub(crate) struct State {
    pub(crate) random: SmallRng,
    pub(crate) database: Database,
    pub(crate) checker: Checker,
    pub(crate) behaviours: BTreeMap<Number, Behaviour>,
    pub(crate) destinations: Vec<Destination>,
    /// Key of the last event that was appended.
    pub(crate) last_key: usize,
    /// Whether faults happen; they stop at the end of a run.
    pub(crate) faults: bool,
    /// Time before which the server does not reply.
    pub(crate) away_until: Time,
    /// Registrations of processes that were killed.
    pub(crate) killed: BTreeSet<String>,
    pub(crate) numbers: Number,
    /// Incremented when the server comes back with an older state.
    pub(crate) timeline: u64,
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    start: Instant,
    state: Mutex<State>,
}

/// One process with a relay in it. A killed process hangs at its next await of the world, which
/// from outside looks the same as gone.
#[derive(Debug, Default)]
pub(crate) struct Process {
    killed: AtomicBool,
    /// The registration that it holds now.
    relay: Mutex<String>,
}

impl Process {
    pub(crate) fn kill(&self, state: &mut State) {
        self.killed.store(true, Ordering::SeqCst);
        state.killed.insert(self.relay());
        state.checker.counts.kills += 1;
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    pub(crate) fn relay(&self) -> String {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn registered(&self, relay: &str) {
        relay.clone_into(&mut self.relay.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl World {
    pub(crate) fn new(scenario: &Scenario, traced: bool) -> Arc<Self> {
        let mut database = Database::default();
        database.tables.insert(EVENTS.to_owned(), Table::new(scenario.claim));
        if scenario.fan_out {
            database.tables.insert(BRANCH.to_owned(), Table::new(scenario.claim));
        }
        let checker = Checker {
            keeps_order: scenario.keeps_order(),
            trace: traced.then(Vec::new),
            ..Checker::default()
        };
        let state = State {
            random: SmallRng::seed_from_u64(scenario.seed),
            database,
            checker,
            behaviours: BTreeMap::new(),
            destinations: vec![Destination::default(); scenario.destinations],
            last_key: 0,
            faults: true,
            away_until: Time::ZERO,
            killed: BTreeSet::new(),
            numbers: 0,
            timeline: 1,
        };
        Arc::new(Self {
            scenario: scenario.clone(),
            start: Instant::now(),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.start.elapsed()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn draw(&self, share: f64) -> bool {
        self.state().random.random_bool(share)
    }

    pub(crate) fn time_between(&self, from_ms: u64, to_ms: u64) -> Duration {
        between(&mut self.state().random, from_ms, to_ms)
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        let now = self.now();
        self.state().checker.note(now, what);
    }

    /// Travels to the database or the sink, or back. Takes time, and stops a process that was
    /// killed in the meantime.
    pub(crate) async fn travel(&self, process: &Process, slow: bool) {
        let (hurried, slow) = {
            let mut state = self.state();
            let slow = slow && state.faults && state.random.random_bool(SLOW_CALLS);
            (state.random.random_bool(0.3), slow)
        };
        if slow {
            sleep(self.time_between(500, 9_000)).await;
        } else if !hurried {
            let micros = self.state().random.random_range(1..=3_000);
            sleep(Duration::from_micros(micros)).await;
        }
        if process.is_killed() {
            pending::<()>().await;
        }
    }

    /// Makes one call of the store: there, a transaction, and back.
    pub(crate) async fn call<T>(
        &self,
        process: &Process,
        work: impl FnOnce(&mut State, Time) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let faulty = self.scenario.store_faults;
        let session = self.state().database.starts;
        self.travel(process, faulty).await;
        let now = self.now();
        let answer = {
            let mut state = self.state();
            let fails = faulty && state.faults && state.random.random_bool(STORE_ERRORS);
            // A session ends with the server that it was opened on.
            let ended = state.database.starts != session;
            match fails || ended || now < state.away_until {
                true => None,
                false => Some(work(&mut state, now)),
            }
        };
        let Some(answer) = answer else {
            sleep(Duration::from_millis(5)).await;
            return Err(away());
        };
        self.travel(process, faulty).await;
        let is_lost = {
            let mut state = self.state();
            let lost = faulty && state.faults && state.random.random_bool(STORE_ERRORS);
            lost || self.now() < state.away_until
        };
        if is_lost { Err(away()) } else { answer }
    }
}

/// Returns the error of a database that cannot be reached.
pub(crate) fn away() -> StoreError {
    StoreError::Unavailable(sqlx::Error::PoolTimedOut)
}

pub(crate) fn number_of_key(key: &Key) -> usize {
    key.aggregate_id.parse().unwrap_or_default()
}
