//! One storm, from the first relay to the final account.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use postrider_command::Failure;
use postrider_store::{Database, DlqFilter, EventFilter, LedgerWindow, Page, Status};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::stage::Stage;
use super::fleet::{Fleet, Links, Spec};
use super::journal::Journal;
use super::judge::{self, Tables};
use super::lull::Lull;
use super::receiving::Receiving;
use super::relay::{HEARTBEAT_EVERY, LEASE};
use super::verdict::{Outcome, Settings, Verdict};
use super::writers::{self, Plan, Writers};
use crate::bench::facts::Facts;
use crate::cli::{StormArgs, StormSink};

/// Interval between reads of the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval between checks whether the outbox is drained.
const STEP: Duration = Duration::from_millis(50);
/// Kills in a row; afterwards the relays get some time. Under kills without end, they would only
/// search for the event that causes the crashes, and send one event at a time.
const BURST: std::ops::RangeInclusive<u32> = 1..=3;
/// Some bursts are longer, to exercise that search.
const LONG_BURST: u32 = 8;
const LONG: f64 = 0.1;
/// Share of a burst's time during which its kills happen.
const KILLING: f64 = 0.3;
/// Number of bursts after which a lull follows in any case.
const BURSTS_TO_LULL: u32 = 8;
/// A lull also starts when this many seconds' worth of events wait; it ends when almost none do.
const LULL_FROM_S: i64 = 2;
/// Writers pause while this many seconds' worth of events wait: behind a long queue, no commit is
/// late.
const BACKLOG_MAX_S: i64 = 4;
const LULL_MAX: Duration = Duration::from_secs(20);
/// Limits of the total time of lulls: this much, plus this share of the time that the kills take.
const LULLS_FIRST: Duration = Duration::from_secs(20);
const LULLS_SHARE: f64 = 0.2;
/// Number of dead letters or live rows per read.
const PAGE: u32 = 1_000;

/// One sample of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    pub(super) backlog: i64,
    pub(super) delivered: u64,
}

/// The data that the page shows over time.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) taken: Vec<Sample>,
    /// When relays were killed.
    pub(super) kills: Vec<f64>,
    /// When the faults ended.
    pub(super) calm_s: f64,
}

pub(super) struct Run<'a> {
    pub(super) url: &'a str,
    pub(super) connections_max: u32,
    pub(super) args: &'a StormArgs,
    pub(super) seed: u64,
    pub(super) backup: &'a Path,
    pub(super) journal: &'a Arc<Journal>,
    pub(super) lull: &'a Lull,
    /// Number of events that waited at the last sample.
    pub(super) backlog: Arc<AtomicI64>,
}

impl Run<'_> {
    pub(super) async fn play(
        &self,
        stage: &Stage,
        receiving: &mut Receiving,
        dice: &mut StdRng,
    ) -> Result<(Verdict, Samples), Failure> {
        let args = self.args;
        let mut links = Links::open(self.url, args.relays).await?;
        let spec = Spec::new(args, self.connections_max, &stage.outbox, self.backup, receiving)?;
        let mut fleet = Fleet::start(spec, links.urls(self.url, args.relays))?;
        let plan = Arc::new(self.plan(stage, receiving));
        let mut writers = Writers::start(self.url, args, &plan, dice).await?;
        receiving.misbehave();

        let (mut looks, mut kills) = (Vec::new(), Vec::new());
        let mut of_links = StdRng::from_rng(dice);
        tokio::select! {
            killed = self.kill(&mut fleet, dice, &mut kills) => killed?,
            () = links.disturb(self.lull, &mut of_links) => {}
            failure = writers.failed() => return Err(failure),
            failure = self.look(stage, &mut looks) => return Err(failure),
        }
        let last_kill = Instant::now();
        let calm_s = self.journal.seconds();
        links.calm();
        receiving.calm().await;
        writers.stop().await?;
        let drained = self.drain(stage, &mut fleet, &mut looks, last_kill).await?;
        let recovery_s = last_kill.elapsed().as_secs_f64();
        let exits = fleet.exits;
        fleet.stop().await?;
        receiving.caught_up().await?;

        let outcome = Outcome {
            kills: kills.len() as u64,
            storm_s: calm_s,
            recovery_s,
            drained,
            disturbances: links.done,
            links_hindrance: links.hindrance,
            faults: receiving.faults(),
            relay_exits: exits,
            writes_refused: plan.refused.load(Ordering::Relaxed),
        };
        let verdict = self.verdict(stage, outcome).await?;
        Ok((verdict, Samples { taken: looks, kills, calm_s }))
    }

    fn plan(&self, stage: &Stage, receiving: &Receiving) -> Plan {
        Plan {
            outbox: stage.outbox.clone(),
            journal: Arc::clone(self.journal),
            keys: self.args.keys,
            destinations: receiving.destinations(),
            poison_bytes: receiving.poison_bytes(),
            events_per_s: f64::from(self.args.rate) / f64::from(writers::prompt(self.args.writers)),
            backlog: Arc::clone(&self.backlog),
            backlog_max: i64::from(self.args.rate) * BACKLOG_MAX_S,
            refused: AtomicU64::new(0),
            sequences: (0..self.args.keys).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Kills relays at random moments until the planned number is reached.
    async fn kill(
        &self,
        fleet: &mut Fleet,
        dice: &mut StdRng,
        kills: &mut Vec<f64>,
    ) -> Result<(), Failure> {
        let bar = bar("storm", u64::from(self.args.kills));
        let mut lulls = Duration::ZERO;
        for burst in 1.. {
            let left = self.args.kills - kills.len() as u32;
            let long = dice.random_bool(LONG);
            let size = if long { LONG_BURST } else { dice.random_range(BURST) }.min(left);
            let ends_at = Instant::now() + self.args.kill_every * size;
            for _ in 0..size {
                let gap = self.args.kill_every.mul_f64(dice.random_range(0.0..2.0 * KILLING));
                tokio::time::sleep(gap).await;
                fleet.revive()?;
                kills.push(self.journal.seconds());
                fleet.kill(dice.random_range(0..self.args.relays as usize)).await?;
                bar.set_position(kills.len() as u64);
                bar.set_message(format!("{} delivered", self.journal.delivered()));
            }
            if size == left {
                break;
            }
            tokio::time::sleep_until(ends_at.into()).await;
            let waiting_s = self.backlog.load(Ordering::Relaxed) / i64::from(self.args.rate);
            if burst % BURSTS_TO_LULL == 0 || waiting_s >= LULL_FROM_S {
                let planned = self.args.kill_every * kills.len() as u32;
                let most = LULLS_FIRST + planned.mul_f64(LULLS_SHARE);
                lulls += self.lull(fleet, most.saturating_sub(lulls).min(LULL_MAX)).await?;
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Suspends faults until the relays have caught up. Returns how long that took.
    async fn lull(&self, fleet: &mut Fleet, at_most: Duration) -> Result<Duration, Failure> {
        self.lull.set(true);
        let since = Instant::now();
        let few = i64::from(self.args.rate / 2).max(1);
        while since.elapsed() < at_most {
            tokio::time::sleep(LOOK_EVERY).await;
            fleet.revive()?;
            if self.backlog.load(Ordering::Relaxed) <= few {
                break;
            }
        }
        self.lull.set(false);
        Ok(since.elapsed())
    }

    /// Samples the backlog until the database fails to answer.
    async fn look(&self, stage: &Stage, looks: &mut Vec<Sample>) -> Failure {
        loop {
            if let Err(failure) = self.look_once(stage, looks).await {
                return failure;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Takes a sample. Returns the number of waiting events.
    async fn look_once(&self, stage: &Stage, looks: &mut Vec<Sample>) -> Result<i64, Failure> {
        let backlog = stage.store.statistics(&stage.outbox).await?.pending;
        self.backlog.store(backlog, Ordering::Relaxed);
        let (at_s, delivered) = (self.journal.seconds(), self.journal.delivered());
        looks.push(Sample { at_s, backlog, delivered });
        Ok(backlog)
    }

    /// Waits until nothing is left to deliver. Returns `false` if that took too long.
    async fn drain(
        &self,
        stage: &Stage,
        fleet: &mut Fleet,
        looks: &mut Vec<Sample>,
        since: Instant,
    ) -> Result<bool, Failure> {
        let bar = bar("recovery", 0);
        let mut looked_at = None::<Instant>;
        loop {
            let pending = match looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                true => {
                    looked_at = Some(Instant::now());
                    self.look_once(stage, looks).await?
                }
                false => stage.store.statistics(&stage.outbox).await?.pending,
            };
            let pending = u64::try_from(pending).unwrap_or(0);
            bar.set_length(bar.length().unwrap_or(0).max(pending));
            bar.set_position(bar.length().unwrap_or(0).saturating_sub(pending));
            if pending == 0 || since.elapsed() > self.args.drain_timeout {
                bar.finish_and_clear();
                self.look_once(stage, looks).await?;
                return Ok(pending == 0);
            }
            fleet.revive()?;
            tokio::time::sleep(STEP).await;
        }
    }

    async fn verdict(&self, stage: &Stage, outcome: Outcome) -> Result<Verdict, Failure> {
        let (args, store, outbox) = (self.args, stage.store.as_ref(), &stage.outbox);
        let (tables, processing) = tables(store, stage).await?;
        let findings = judge::judge(&self.journal.copy(), &tables);
        let settings = Settings {
            claim: args.claim.as_str(),
            sink: match args.sink {
                StormSink::Http => "http",
                StormSink::Kafka => "kafka",
            },
            relays: args.relays,
            rate: args.rate,
            keys: args.keys,
            writers: args.writers,
            kill_every_s: args.kill_every.as_secs_f64(),
            lease_s: LEASE.as_secs_f64(),
            heartbeat_s: HEARTBEAT_EVERY.as_secs_f64(),
            seed: self.seed,
        };
        let balanced = store.ledger(outbox).await?.iter().all(LedgerWindow::balanced);
        let facts = Facts::of("storm", store).await?;
        Ok(Verdict::new(facts, settings, findings, outcome, processing, balanced))
    }
}

/// Returns dead letters and live rows, and how many of the latter a relay still works on.
async fn tables(store: &dyn Database, stage: &Stage) -> Result<(Tables, u64), Failure> {
    let mut tables = Tables::default();
    let mut page = Page::first(PAGE).within(Duration::MAX);
    loop {
        let listed = store.dead_letters(&stage.outbox, &DlqFilter::default(), page).await?;
        tables.dead.extend(listed.rows.iter().map(|letter| (letter.original_id, letter.reason)));
        let Some(next) = listed.next else { break };
        page = page.below(Some(next));
    }
    let (mut page, mut processing) = (Page::first(PAGE).within(Duration::MAX), 0);
    loop {
        let listed = store.events(&stage.outbox, &EventFilter::default(), page).await?;
        tables.live.extend(listed.rows.iter().map(|event| event.id));
        let held = listed.rows.iter().filter(|event| event.status == Status::Processing);
        processing += held.count() as u64;
        let Some(next) = listed.next else { return Ok((tables, processing)) };
        page = page.below(Some(next));
    }
}

fn bar(title: &'static str, total: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{msg:>9} {bar:40} {human_pos}/{human_len}  {eta} left");
    let bar = ProgressBar::new(total).with_message(title);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
