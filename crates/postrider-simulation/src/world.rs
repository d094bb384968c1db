//! Everything outside the relays: database, destinations, faults, and who watches them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider::StoreError;
use postrider::store::Key;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Instant, sleep};

use crate::checker::Checker;
use crate::database::{Database, Number, Table, Time};
use crate::scenario::{Scenario, between};

/// The outbox that the writers append to.
pub(crate) const EVENTS: &str = "events";
/// The outbox that it is fanned out to.
pub(crate) const BRANCH: &str = "branch";

/// Share of the store's calls that fail before they do anything, and after they did it.
const STORE_ERRORS: f64 = 0.02;
/// Share of the calls that take seconds.
const SLOW_CALLS: f64 = 0.004;

/// How an event behaves at the sink.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Behaviour {
    pub(crate) rejected: bool,
    pub(crate) kills: bool,
    /// Tries that fail before it is taken.
    pub(crate) failures: u32,
}

/// A destination of the sink.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Destination {
    /// The number of the outage that it is in.
    pub(crate) down: Option<u64>,
}

/// What the world is made of; locked for moments only.
pub(crate) struct State {
    pub(crate) random: SmallRng,
    pub(crate) database: Database,
    pub(crate) checker: Checker,
    pub(crate) behaviours: BTreeMap<Number, Behaviour>,
    pub(crate) destinations: Vec<Destination>,
    /// The key of the last event that was written.
    pub(crate) last_key: usize,
    /// Faults happen; at the end of a run they stop.
    pub(crate) faults: bool,
    /// The server does not answer before this.
    pub(crate) away_until: Time,
    /// Registrations of processes that were killed.
    pub(crate) killed: BTreeSet<String>,
    pub(crate) numbers: Number,
    /// Rises when the server comes back with an older state.
    pub(crate) timeline: u64,
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    start: Instant,
    state: Mutex<State>,
}

/// One process with a relay in it. A killed one hangs at whatever it awaits of the world, which from
/// outside is the same as gone.
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

    /// The way to the database or to the sink, or back: takes time, and ends a process that was
    /// killed meanwhile.
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

    /// One call of the store: there, a transaction, and back.
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
            // A session ends with the server that it was made with.
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

/// The error of a database that cannot be reached.
fn away() -> StoreError {
    StoreError::Unavailable(sqlx::Error::PoolTimedOut)
}

pub(crate) fn number_of_key(key: &Key) -> usize {
    key.aggregate_id.parse().unwrap_or_default()
}
