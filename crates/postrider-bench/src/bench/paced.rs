//! A run at a fixed rate: writers on a schedule, and relays that deliver.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider::Outbox;
use postrider_command::Failure;

use super::event::Maker;
use super::relays::{self, Goal, Plan, Relays, Watch};
use super::schedule::{Latencies, Schedule, Times, Writers};
use super::sinks::Sinks;
use super::stage::Stage;
use crate::cli::LoadArgs;

/// Maximum number of events per run; the times of each take 16 bytes.
const EVENTS_MAX: u64 = 20_000_000;

/// The results of a run at a fixed rate.
pub(super) struct Paced {
    pub(super) events: u64,
    pub(super) watched: Watch,
    /// Seconds, and milliseconds.
    pub(super) claims: Vec<(f64, f64)>,
    pub(super) latencies: Latencies,
    pub(super) duplicates_and_order_violations: (u64, u64),
    pub(super) balanced: bool,
}

/// Returns the number of events in this time. Fails if their times would take too much memory.
pub(super) fn events(rate: u32, seconds: u32) -> Result<u64, Failure> {
    let events = u64::from(rate) * u64::from(seconds);
    match events <= EVENTS_MAX {
        true => Ok(events),
        false => Err(Failure::Usage(format!(
            "--rate {rate} for --seconds {seconds} are {events} events; at most {EVENTS_MAX}"
        ))),
    }
}

/// Appends `events` at this rate while relays deliver them; the times of the first `warm_up_events`
/// are not kept.
pub(super) async fn run(
    stage: &Stage,
    (outbox, sinks): (&Outbox, &Sinks),
    load: &LoadArgs,
    (rate, events, warm_up_events): (u32, u64, u64),
) -> Result<Paced, Failure> {
    let maker = Maker::new(load.event.keys, load.event.payload);
    let mut plan = Plan::new(outbox, sinks, load.relay.claim, load.relay.batch, load.relays);
    let schedule = Arc::new(Schedule::start(rate, events));
    let times = Arc::new(Times::of(&schedule));
    plan.times = Some(Arc::clone(&times));
    let relays = Relays::start(stage, &plan).await?;
    let clock = (&schedule, Some(&times));
    let mut writers = Writers::start(stage, outbox, &maker, clock, load.writers).await?;
    let appended = || schedule.appended.load(Ordering::SeqCst);
    let goal = Goal { title: "at the rate", deliver: events, leave: 0, appended: &appended };
    let watched = relays::watch(stage, (&plan, &relays), Some(&mut writers), goal).await?;
    relays.stop().await?;
    Ok(Paced {
        events,
        watched,
        claims: stage.claims.timed(),
        latencies: times.latencies(warm_up_events),
        duplicates_and_order_violations: plan.checker.duplicates_and_order_violations(),
        balanced: relays::balanced(stage, outbox).await?,
    })
}
