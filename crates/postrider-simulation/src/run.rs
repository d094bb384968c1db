//! One run: relays, writers and faults for a while, then a quiet phase, then the check of the
//! ledger.

use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_relay::{
    Backoff, BranchSettings, FanOut, LaneLimits, OutboxConfig, Preset, Relay, RelayConfig, Sink,
};
use postrider_store::{ClaimMode, OnSuccess};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::actors::{break_destination, break_server, write, writers_of};
use crate::alerts::AlertCheck;
use crate::checker::{Counts, Violation};
use crate::scenario::Scenario;
use crate::sink::SimulatedSink;
use crate::store::SimulatedStore;
use crate::world::{BRANCH, EVENTS, Process, World};

/// Time within which something must happen while rows wait and faults have stopped: longer than a
/// lease and the longest wait between attempts, but shorter than the interval of full reads, which
/// would find forgotten rows.
const QUIET: Duration = Duration::from_secs(40);
/// Additional time for each event that kills relays: it is found after killing five of them, each a
/// lease and a start later.
const QUIET_PER_KILLER: Duration = Duration::from_secs(120);

/// A run that broke a promise.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The scenario.
    pub scenario: Scenario,
    /// The promise that it broke.
    pub violation: Violation,
    /// What happened, line by line, if a trace was requested.
    pub trace: Vec<String>,
}

/// Runs a scenario.
///
/// # Errors
/// The first violation of a promise.
pub fn run(scenario: &Scenario, traced: bool) -> Result<Counts, Box<Failed>> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true);
    // Tasks that wait for the same thing are woken in an order that tokio draws at random:
    // dev/simulate builds with this, so that a seed runs the same way twice.
    #[cfg(tokio_unstable)]
    runtime.rng_seed(tokio::runtime::RngSeed::from_bytes(&scenario.seed.to_le_bytes()));
    let runtime = runtime.build().map_err(|error| not_run(scenario, &error.to_string()))?;
    let world = runtime.block_on(async {
        let world = World::new(scenario, traced);
        simulate(&world).await;
        world
    });
    // Drops everything that the world still holds.
    drop(runtime);
    let checker = std::mem::take(&mut world.state().checker);
    match checker.violation {
        None => Ok(checker.counts),
        Some(violation) => Err(Box::new(Failed {
            scenario: scenario.clone(),
            violation,
            trace: checker.trace.unwrap_or_default(),
        })),
    }
}

fn not_run(scenario: &Scenario, why: &str) -> Box<Failed> {
    let violation = Violation { promise: "the simulation runs", seen: why.to_owned() };
    Box::new(Failed { scenario: scenario.clone(), violation, trace: Vec::new() })
}

async fn simulate(world: &Arc<World>) {
    let scenario = &world.scenario;
    let stop = CancellationToken::new();
    let relays: Vec<JoinHandle<()>> = (0..scenario.relays)
        .map(|_| tokio::spawn(keep_running(Arc::clone(world), stop.clone())))
        .collect();
    let mut faults = Vec::new();
    if scenario.outages {
        let each = 0..scenario.destinations;
        faults.extend(each.map(|place| tokio::spawn(break_destination(world.clone(), place))));
    }
    if scenario.restarts || scenario.rewinds {
        faults.push(tokio::spawn(break_server(Arc::clone(world))));
    }
    let writers = writers_of(world);
    let each = scenario.transactions.div_ceil(writers);
    let writers: Vec<_> =
        (0..writers).map(|_| tokio::spawn(write(Arc::clone(world), each))).collect();
    for writer in writers {
        ended(world, writer).await;
    }
    sleep(world.time_between(0, 20_000)).await;
    for fault in faults {
        fault.abort();
        drop(fault.await);
    }
    {
        let state = &mut *world.state();
        state.faults = false;
        state.away_until = Duration::ZERO;
        state.destinations.iter_mut().for_each(|destination| destination.down = None);
    }
    world.note(|| "quiet".to_owned());
    settle_down(world).await;
    stop.cancel();
    for relay in relays {
        ended(world, relay).await;
    }
    close(world);
}

async fn ended(world: &World, task: JoinHandle<()>) {
    if let Err(error) = task.await {
        world.state().checker.violated("nothing panics", error.to_string());
    }
}

/// Waits until nothing is left to do, or nothing happens any more.
async fn settle_down(world: &World) {
    let killers = u32::try_from(world.scenario.killers).unwrap_or_default();
    let patience = QUIET + killers * QUIET_PER_KILLER;
    let (mut seen, mut until) = (progress(world), world.now() + patience);
    while world.now() < until && world.state().checker.violation.is_none() {
        if waiting(world).is_empty() {
            return;
        }
        sleep(Duration::from_millis(500)).await;
        let now = progress(world);
        if now != seen {
            (seen, until) = (now, world.now() + patience);
        }
    }
}

/// Counts rows that left, and attempts that were spent.
fn progress(world: &World) -> u64 {
    let state = world.state();
    let of = |table: &crate::database::Table| {
        let spent = table.rows.values().map(|row| u64::from(row.retry_count.unsigned_abs()));
        table.delivered + table.dead.len() as u64 + spent.sum::<u64>()
    };
    state.database.tables.values().map(of).sum()
}

/// Returns live rows that do not need a decision of an operator.
fn waiting(world: &World) -> Vec<(String, i64)> {
    let state = world.state();
    let rows = state.database.tables.iter().flat_map(|(outbox, table)| {
        let parked = |key: usize| table.parked.contains(&crate::database::key_of(key));
        let rows = table.rows.iter().filter(move |(_, row)| !parked(row.key));
        rows.map(|(id, _)| (outbox.clone(), *id))
    });
    rows.collect()
}

/// Checks the ledger at the end.
fn close(world: &World) {
    let waiting = waiting(world);
    let state = &mut *world.state();
    if let Some((outbox, id)) = waiting.first() {
        let seen = format!("{} rows wait, the first is {outbox} #{id}", waiting.len());
        state.checker.violated("what can be delivered is", seen);
    }
    for (outbox, table) in &state.database.tables {
        let (live, dead) = (table.rows.len() as u64, table.dead.len() as u64);
        if table.appended != table.delivered + dead + live {
            let (appended, delivered) = (table.appended, table.delivered);
            let seen = format!("{outbox}: {appended} ≠ {delivered} + {dead} + {live}");
            state.checker.violated("the ledger balances", seen);
        }
        if let Some((id, _)) = table.rows.iter().find(|(_, row)| row.processing) {
            let seen = format!("{outbox} #{id} is left PROCESSING");
            state.checker.violated("a stop leaves nothing claimed", seen);
        }
        state.checker.counts.dead += dead;
    }
    count(state);
}

fn count(state: &mut crate::world::State) {
    let branched = state.database.tables.contains_key(BRANCH);
    let outbox = if branched { BRANCH } else { EVENTS };
    let received = state.checker.known.iter().filter(|((of, _), _)| of == outbox);
    let (mut delivered, mut duplicates) = (0, 0);
    for (_, known) in received.filter(|(_, known)| known.received > 0) {
        delivered += 1;
        duplicates += u64::from(known.received) - 1;
    }
    state.checker.counts.delivered = delivered;
    state.checker.counts.duplicates = duplicates;
}

/// Keeps one relay running: after a kill, another one is started.
async fn keep_running(world: Arc<World>, stop: CancellationToken) {
    sleep(world.time_between(0, 5_000)).await;
    while !stop.is_cancelled() {
        let process = Arc::new(Process::default());
        let stopping = stop.child_token();
        let relay = relay(&world, &process).run(stopping.clone());
        let running = tokio::spawn(relay);
        let ends = match world.scenario.kills && world.state().faults {
            true => world.time_between(100, 40_000),
            false => Duration::from_secs(3_600),
        };
        let killed = async {
            let until = world.now() + ends;
            while !process.is_killed() && (world.now() < until || !world.state().faults) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::pin!(running);
        tokio::select! {
            biased;
            ended = &mut running => {
                if let Err(error) = ended {
                    world.state().checker.violated("nothing panics", error.to_string());
                }
                sleep(Duration::from_millis(200)).await;
            }
            () = killed => {
                if !process.is_killed() {
                    process.kill(&mut world.state());
                }
                world.note(|| "killed".to_owned());
                running.abort();
                sleep(world.time_between(10, 8_000)).await;
            }
        }
    }
}

fn relay(world: &Arc<World>, process: &Arc<Process>) -> Relay {
    let store = SimulatedStore { world: Arc::clone(world), process: Arc::clone(process) };
    let config = RelayConfig {
        recover_every: Duration::from_secs(10),
        stalled_after: Duration::from_secs(20),
        fold_every: Duration::from_secs(3_600),
        monitor_every: Duration::from_secs(3_600),
        report_every: Duration::ZERO,
        // Another thread writes the file and takes real time.
        backup_after: Duration::from_secs(365 * 24 * 3_600),
        ..RelayConfig::default()
    };
    let mut relay = Relay::new(Arc::new(store), config);
    for outbox in outboxes(world, process) {
        relay = relay.outbox(outbox);
    }
    relay.alert_channel(AlertCheck::subscribed(world))
}

fn outboxes(world: &Arc<World>, process: &Arc<Process>) -> Vec<OutboxConfig> {
    let sink = |outbox| -> Arc<dyn Sink> {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Arc::new(SimulatedSink { world, process, outbox })
    };
    let (Ok(events), Ok(branch)) = (Outbox::new(EVENTS), Outbox::new(BRANCH)) else {
        return Vec::new();
    };
    if !world.scenario.fan_out {
        return vec![tuned(world, OutboxConfig::new(events, preset(world), sink(EVENTS)))];
    }
    let settings = BranchSettings {
        outbox: branch.clone(),
        event_type: None,
        aggregate_type: None,
        filter: None,
    };
    let Ok(fan_out) = FanOut::new("fan-out", &[settings]) else { return Vec::new() };
    let parent = OutboxConfig::fanned_out(events, preset(world), Arc::new(fan_out));
    let child = OutboxConfig::new(branch, preset(world), sink(BRANCH));
    vec![tuned(world, parent), tuned(world, child)]
}

fn preset(world: &World) -> Preset {
    Preset {
        idle_poll: Duration::from_secs(1),
        batch: world.scenario.batch,
        backoff: Backoff {
            first: Duration::from_millis(500),
            factor: 2.0,
            max: Duration::from_secs(4),
            jitter: 0.0,
        },
        max_retries: 8,
        on_success: OnSuccess::Delete,
        ..Preset::broker()
    }
}

/// Sets small limits, which make rare states common.
fn tuned(world: &World, config: OutboxConfig) -> OutboxConfig {
    OutboxConfig {
        claim: Some(world.scenario.claim),
        failing_key: world.scenario.failing_key,
        batches_max: world.scenario.batches,
        deliver_timeout: Duration::from_secs(4),
        lane_limits: LaneLimits {
            load_rows_max: 24,
            load_rows_first: 6,
            waiting_rows_max: 1_000,
            read_rows_min: 4,
            again_max: 3,
            hide_after: 3,
            hidden_max: 2,
            // A row that only a full read would find counts as forgotten.
            sweep_every: Duration::from_secs(24 * 3_600),
        },
        ..config
    }
}

/// The claim modes.
pub const MODES: [ClaimMode; 2] = [ClaimMode::Lanes, ClaimMode::Rows];
