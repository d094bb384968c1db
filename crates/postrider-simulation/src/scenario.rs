//! What happens in one run: drawn from a seed, and made smaller when it fails.

use std::time::Duration;

use postrider::store::ClaimMode;
use postrider_relay::FailingKey;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::database::Number;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Draws everything that is not written here.
    pub seed: u64,
    /// How relays share the work.
    pub claim: ClaimMode,
    /// What becomes of a key whose event fails.
    pub failing_key: FailingKey,
    /// Relays at the same time.
    pub relays: usize,
    /// Transactions that are begun.
    pub transactions: usize,
    /// Writers at the same time.
    pub writers: usize,
    /// Ordering keys.
    pub keys: usize,
    /// Destinations of the sink; keys or events are spread over them.
    pub destinations: usize,
    /// Events of one key go to different destinations.
    pub mixed_keys: bool,
    /// The events go to a second outbox first, and from there to the sink.
    pub fan_out: bool,
    /// Batches in flight per relay.
    pub batches: usize,
    /// Events per batch.
    pub batch: u32,
    /// How the database tells who still writes.
    pub horizon: HorizonKind,
    /// Transactions may stay open for seconds.
    pub late_commits: bool,
    /// Transactions may be prepared and outlive the server.
    pub prepared: bool,
    /// Events may be appended for later.
    pub deferrals: bool,
    /// Events may fail, be rejected, or expire.
    pub failures: bool,
    /// Destinations go down and come back.
    pub outages: bool,
    /// Calls of the store fail, or their answers are lost, or they take long.
    pub store_faults: bool,
    /// Calls of the sink hang, or their answers are lost.
    pub sink_faults: bool,
    /// Relays are killed at any moment, and new ones started.
    pub kills: bool,
    /// Events that kill whoever delivers them.
    pub killers: usize,
    /// The server is restarted.
    pub restarts: bool,
    /// The server comes back with an older state, as after a fail-over or a restored backup.
    pub rewinds: bool,
}

/// How a database tells which transactions still write.
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
    /// The scenario of a seed in a claim mode.
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
        // A breaker opens after failures of several events, which are of different keys in lanes.
        if scenario.mixed_keys || random.random_bool(0.2) {
            scenario.keys *= 4;
            scenario.outages = true;
        }
        scenario
    }

    /// The scenarios that are a little smaller than this one, the largest steps first.
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

    /// The destination of an event.
    pub(crate) fn destination_of(&self, key: usize, number: Number) -> usize {
        let spread = match self.mixed_keys {
            true => usize::try_from(number).unwrap_or_default(),
            false => key,
        };
        spread % self.destinations.max(1)
    }

    /// Whether events of a key arrive in order.
    pub fn keeps_order(&self) -> bool {
        self.claim == ClaimMode::Lanes && self.failing_key != FailingKey::Skip
    }
}

/// A time between two, drawn evenly.
pub(crate) fn between(random: &mut SmallRng, from_ms: u64, to_ms: u64) -> Duration {
    Duration::from_millis(random.random_range(from_ms..=to_ms))
}
