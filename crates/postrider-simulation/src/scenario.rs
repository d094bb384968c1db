//! The scenario of one run: generated from a seed, and shrunk when the run fails.

use std::time::Duration;

use postrider_relay::FailingKey;
use postrider_store::ClaimMode;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::database::Number;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Seed for everything that is not set here.
    pub seed: u64,
    /// How relays share the work.
    pub claim: ClaimMode,
    /// How a key is treated whose event fails.
    pub failing_key: FailingKey,
    /// Number of concurrent relays.
    pub relays: usize,
    /// Number of transactions.
    pub transactions: usize,
    /// Number of concurrent writers.
    pub writers: usize,
    /// Number of ordering keys.
    pub keys: usize,
    /// Number of destinations of the sink; keys or events are spread over them.
    pub destinations: usize,
    /// Whether events of one key go to different destinations.
    pub mixed_keys: bool,
    /// Whether the events go to a second outbox first, and from there to the sink.
    pub fan_out: bool,
    /// Number of batches in flight per relay.
    pub batches: usize,
    /// Number of events per batch.
    pub batch: u32,
    /// How the database reports open writers.
    pub horizon: HorizonKind,
    /// Whether transactions may stay open for seconds.
    pub late_commits: bool,
    /// Whether transactions may be prepared and outlive the server.
    pub prepared: bool,
    /// Whether events may be appended for later.
    pub deferrals: bool,
    /// Whether events may fail, be rejected, or expire.
    pub failures: bool,
    /// Whether destinations go down and come back.
    pub outages: bool,
    /// Whether calls of the store fail, lose their answers, or take long.
    pub store_faults: bool,
    /// Whether calls of the sink hang or lose their answers.
    pub sink_faults: bool,
    /// Whether relays are killed at any moment, and new ones started.
    pub kills: bool,
    /// Number of events that kill the relay that delivers them.
    pub killers: usize,
    /// Whether the server is restarted.
    pub restarts: bool,
    /// Whether the server comes back with an older state, as after a fail-over or a restored
    /// backup.
    pub rewinds: bool,
}

/// How a database reports which transactions may still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HorizonKind {
    /// A list of open transactions, as on PostgreSQL.
    List,
    /// The same with a delay, as on MariaDB.
    AgedList,
    /// One writer at a time, as on SQLite.
    OneWriter,
}

impl Scenario {
    /// Returns the scenario of a seed in a claim mode.
    pub fn of(seed: u64, claim: ClaimMode) -> Self {
        let mut random = SmallRng::seed_from_u64(seed ^ 0x005c_e7a1_0000_0000);
        let mut often = |share: f64| random.random_bool(share);
        let lanes = claim == ClaimMode::Lanes;
        let failing_key = match (often(0.1), often(0.1)) {
            (true, _) => FailingKey::Skip,
            (_, true) => FailingKey::Park,
            _ => FailingKey::Block,
        };
        let horizon = match (often(0.2), often(0.2)) {
            (true, _) => HorizonKind::OneWriter,
            (_, true) => HorizonKind::AgedList,
            _ => HorizonKind::List,
        };
        let (restarts, rewinds) = (often(0.2), often(0.1));
        let mut scenario = Self {
            seed,
            claim,
            failing_key,
            horizon,
            late_commits: often(0.7) && horizon != HorizonKind::OneWriter,
            prepared: restarts && often(0.7) && horizon != HorizonKind::OneWriter,
            deferrals: often(0.4),
            failures: often(0.7),
            outages: often(0.4),
            store_faults: often(0.4),
            sink_faults: often(0.4),
            kills: often(0.4),
            killers: usize::from(often(0.05)),
            restarts,
            rewinds,
            fan_out: lanes && often(0.15),
            relays: random.random_range(1..=3),
            transactions: random.random_range(5..=60),
            writers: random.random_range(1..=4),
            keys: random.random_range(1..=5),
            destinations: random.random_range(1..=3),
            batches: random.random_range(1..=3),
            batch: random.random_range(1..=8),
            mixed_keys: random.random_bool(0.2),
        };
        // A breaker opens after failures of several events, which have different keys in lanes.
        if scenario.mixed_keys || random.random_bool(0.2) {
            scenario.keys *= 4;
            scenario.outages = true;
        }
        scenario
    }

    /// Returns scenarios that are slightly smaller than this one, the largest steps first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        let mut change = |apply: &dyn Fn(&mut Self)| {
            let mut smaller = self.clone();
            apply(&mut smaller);
            if smaller != *self {
                found.push(smaller);
            }
        };
        change(&|s| s.rewinds = false);
        change(&|s| (s.restarts, s.prepared) = (false, false));
        change(&|s| s.kills = false);
        change(&|s| s.killers = 0);
        change(&|s| s.store_faults = false);
        change(&|s| s.sink_faults = false);
        change(&|s| s.outages = false);
        change(&|s| s.failures = false);
        change(&|s| s.deferrals = false);
        change(&|s| s.late_commits = false);
        change(&|s| s.prepared = false);
        change(&|s| s.fan_out = false);
        change(&|s| s.mixed_keys = false);
        change(&|s| s.relays = 1);
        change(&|s| s.transactions = (s.transactions / 2).max(1));
        change(&|s| s.transactions = s.transactions.saturating_sub(1).max(1));
        change(&|s| s.writers = 1);
        change(&|s| s.keys = (s.keys - 1).max(1));
        change(&|s| s.destinations = 1);
        change(&|s| s.batches = 1);
        found
    }

    /// Returns the destination of an event.
    pub(crate) fn destination_of(&self, key: usize, number: Number) -> usize {
        let spread = match self.mixed_keys {
            true => usize::try_from(number).unwrap_or_default(),
            false => key,
        };
        spread % self.destinations.max(1)
    }

    /// Returns whether events of a key arrive in order.
    pub fn keeps_order(&self) -> bool {
        self.claim == ClaimMode::Lanes && self.failing_key != FailingKey::Skip
    }
}

/// Draws a time between two limits, uniformly.
pub(crate) fn between(random: &mut SmallRng, from_ms: u64, to_ms: u64) -> Duration {
    Duration::from_millis(random.random_range(from_ms..=to_ms))
}
