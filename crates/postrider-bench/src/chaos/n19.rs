//! `postrider chaos n19`: an API is down for hours while calls to it continue; all of them must be
//! delivered afterwards without intervention. Everything is real except the time, which is
//! compressed.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use postrider_command::Failure;
use postrider_command::output;
use postrider_command::{install_metrics, stop_on_signal};
use postrider_relay::{
    Backoff, OutboxConfig, Preset, Relay, RelayConfig, RelayError,
    sinks::{HttpSettings, HttpSink},
    telemetry,
};
use postrider_store::{CountLimit, DlqFilter, LedgerWindow};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use super::api::Mood;
use super::samples::Samples;
use super::stage::Stage;
use super::target::Target;
use super::verdict::Verdict;
use super::{POISON, limit, page};
use crate::bench::facts::Facts;
use crate::cli::N19Args;

/// Events per append.
const APPEND_BATCH: u64 = 1_000;
/// Interval between reads of the backlog.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Interval between reads of the API's counters.
const STEP: Duration = Duration::from_millis(20);
/// A run without progress for this long has failed.
const STALL: Duration = Duration::from_secs(120);
/// Shortest request timeout: it is not compressed further, because it waits for a real answer.
const TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// The phases of the outage, each a quarter of it.
const OUTAGE: [Mood; 4] = [Mood::Unavailable, Mood::Closing, Mood::Silent, Mood::Refusing];

pub(crate) async fn n19(url: &str, connections_max: u32, args: &N19Args) -> Result<(), Failure> {
    let run = Run::plan(args)?;
    if let Some(file) = &args.report {
        // Fails before a run of minutes if the file cannot be written, not after it.
        write_page(file, "")?;
    }
    let stage = Stage::create(url, connections_max, args.claim).await?;
    let metrics = install_metrics()?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    let mut samples = Samples::start(metrics);
    let played = stop.run_until_cancelled(run.play(&stage, &mut samples)).await;
    let played = played.unwrap_or_else(|| Err(Failure::Partly("stopped half-way".to_owned())));
    let verdict = stage.drop_after(played).await?;
    match args.json {
        true => output::print_json(&verdict)?,
        false => verdict.print()?,
    }
    if let Some(file) = &args.report {
        std::fs::write(file, page::page(&verdict, &samples.taken))
            .map_err(|error| Failure::Usage(format!("--report {}: {error}", file.display())))?;
    }
    verdict.outcome()
}

pub(super) fn write_page(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        let file = file.display();
        Failure::Usage(format!("--report {file}: {error}; name a file that can be written"))
    })
}

struct Run<'a> {
    args: &'a N19Args,
    events: u64,
    outage: Duration,
}

impl<'a> Run<'a> {
    fn plan(args: &'a N19Args) -> Result<Self, Failure> {
        let by_rate = args.rps.saturating_mul(args.outage.as_secs());
        let events = args.events.unwrap_or(by_rate);
        if events == 0 || events > 100_000_000 || args.poison > events {
            return Err(Failure::Usage(format!(
                "--events {events} with --poison {}: 1 to 100000000 events, and no more poison \
                 than events",
                args.poison
            )));
        }
        Ok(Self { args, events, outage: args.outage / args.scale })
    }

    /// Spreads poison evenly.
    fn is_poison(&self, number: u64) -> bool {
        let (poison, events) = (u128::from(self.args.poison), u128::from(self.events));
        let before = |number: u128| number * poison / events;
        before(u128::from(number) + 1) > before(u128::from(number))
    }

    async fn play(&self, stage: &Stage, samples: &mut Samples) -> Result<Verdict, Failure> {
        let target = Target::start(self.events).await?;
        // The sink comes first: it loads what all TLS clients of this process share.
        let outbox = self.outbox(stage, &target)?;
        let before = limit::measure(&target, self.events, self.args.concurrency).await?;
        target.forget().await?;

        let relay = Relay::new(Arc::clone(&stage.store), RelayConfig::default()).outbox(outbox);
        let (waker, stop) = (relay.waker(), CancellationToken::new());
        let _stop = stop.clone().drop_guard();
        let mut relaying = tokio::spawn(relay.run(stop.clone()));

        let incident = async {
            let outage_s = self.outage(stage, &target, samples, &waker).await?;
            let at_end = target.counts().await?;
            target.be(Mood::Well).await?;
            let back = Instant::now();
            self.recovery(stage, &target, samples).await?;
            Ok::<_, Failure>((outage_s, at_end, back.elapsed().as_secs_f64()))
        };
        let (outage_s, at_end, recovery_s) = tokio::select! {
            played = incident => played?,
            ended = &mut relaying => {
                relay_outcome(ended)?;
                return Err(Failure::Partly("the relay ended before its work was done".to_owned()));
            }
        };
        stop.cancel();
        relay_outcome(relaying.await)?;
        let verdict = self.verdict(stage, &target, samples).await?;
        let events_per_s = (verdict.delivered - at_end.distinct) as f64 / recovery_s;
        // The better of two: other work on the machine can only lower the measured limit.
        let after = limit::measure(&target, self.events, self.args.concurrency).await?;
        let limit = before.max(after);
        Ok(Verdict {
            outage_s,
            recovery_s,
            events_per_s,
            limit_events_per_s: limit,
            ratio: events_per_s / limit,
            requests_during_outage: at_end.failed,
            ..verdict
        }
        .judged())
    }

    /// Configures the preset `api-call` with compressed waits.
    fn outbox(&self, stage: &Stage, target: &Target) -> Result<OutboxConfig, Failure> {
        let (preset, scale) = (Preset::api_call(), self.args.scale);
        let preset = Preset {
            idle_poll: (preset.idle_poll / scale).max(Duration::from_millis(5)),
            batch: self.args.batch,
            backoff: Backoff {
                first: preset.backoff.first / scale,
                max: preset.backoff.max / scale,
                ..preset.backoff
            },
            outage_max: preset.outage_max / scale,
            ..preset
        };
        let url = format!("http://{}/calls/{{event_type}}/{{aggregate_id}}", target.address);
        let sink = HttpSink::new(HttpSettings {
            timeout: (Duration::from_secs(5) / scale).max(TIMEOUT_MIN),
            host_concurrency_max: self.args.concurrency as usize,
            ..HttpSettings::new("api", url)
        })?;
        let mut outbox = OutboxConfig::new(stage.outbox.clone(), preset, Arc::new(sink));
        outbox.claim = Some(self.args.claim);
        Ok(outbox)
    }

    /// Breaks the API while calls continue at their rate. Returns how long this took: longer than
    /// planned if the store accepts them more slowly.
    async fn outage(
        &self,
        stage: &Stage,
        target: &Target,
        samples: &mut Samples,
        waker: &postrider_relay::Waker,
    ) -> Result<f64, Failure> {
        let bar = bar("outage", self.events);
        let started = Instant::now();
        let share = |done: u64| {
            let by_time = started.elapsed().as_secs_f64() / self.outage.as_secs_f64().max(0.001);
            by_time.min(done as f64 / self.events as f64)
        };
        let (mut appended, mut mood, mut looked_at) = (0, None, None::<Instant>);
        loop {
            let quarter = (share(appended) * OUTAGE.len() as f64) as usize;
            let now = OUTAGE[quarter.min(OUTAGE.len() - 1)];
            if mood.replace(now) != Some(now) {
                target.be(now).await?;
            }
            let due = self.events as f64 * started.elapsed().as_secs_f64()
                / self.outage.as_secs_f64().max(0.001);
            let until = (appended + APPEND_BATCH).min(self.events);
            if appended < self.events && (due as u64).min(self.events) >= until {
                stage.append(appended..until, |number| self.is_poison(number)).await?;
                waker.wake();
                appended = until;
                bar.set_position(appended);
            } else {
                tokio::time::sleep(STEP).await;
            }
            if looked_at.is_none_or(|at| at.elapsed() >= LOOK_EVERY) {
                looked_at = Some(Instant::now());
                let backlog = stage.store.statistics(&stage.outbox).await?.pending;
                samples.take(backlog, target.counts().await?.distinct);
            }
            if appended == self.events && started.elapsed() >= self.outage {
                bar.finish_and_clear();
                return Ok(started.elapsed().as_secs_f64());
            }
        }
    }

    /// Restores the API and waits until everything is settled, not only delivered.
    async fn recovery(
        &self,
        stage: &Stage,
        target: &Target,
        samples: &mut Samples,
    ) -> Result<(), Failure> {
        let bar = bar("recovery", self.events);
        let (mut moved_at, mut looked_at) = (Instant::now(), Instant::now());
        loop {
            tokio::time::sleep(STEP).await;
            let counts = target.counts().await?;
            let done = counts.distinct + counts.refused;
            if done > bar.position() {
                moved_at = Instant::now();
                bar.set_position(done);
            }
            if looked_at.elapsed() >= LOOK_EVERY || done >= self.events {
                looked_at = Instant::now();
                let pending = stage.store.statistics(&stage.outbox).await?.pending;
                samples.take(pending, counts.distinct);
                if pending == 0 {
                    bar.finish_and_clear();
                    return Ok(());
                }
            }
            if moved_at.elapsed() > STALL {
                // The figures show what is missing.
                return Ok(());
            }
        }
    }

    /// Computes the final figures, except times.
    async fn verdict(
        &self,
        stage: &Stage,
        target: &Target,
        samples: &Samples,
    ) -> Result<Verdict, Failure> {
        let counts = target.counts().await?;
        let (store, outbox) = (stage.store.as_ref(), &stage.outbox);
        let ledger = store.ledger(outbox).await?;
        let poison = DlqFilter { event_type: Some(POISON.to_owned()), ..DlqFilter::default() };
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let dead = count(
            store.dead_letter_count(outbox, &DlqFilter::default(), CountLimit::NONE).await?.count,
        );
        let dead_poison =
            count(store.dead_letter_count(outbox, &poison, CountLimit::NONE).await?.count);
        let pending = count(ledger.iter().map(|window| window.pending.count).sum());
        // Calls that the API would have accepted; it may have accepted one that became a dead
        // letter.
        let good = self.events - self.args.poison;
        let accounted = counts.distinct + pending + dead - dead_poison;
        let poison_gone = self.args.poison.saturating_sub(dead_poison).saturating_sub(pending);
        Ok(Verdict {
            chaos: "n19",
            facts: Facts::of("n19", store).await?,
            events: self.events,
            poison: self.args.poison,
            scale: self.args.scale,
            claim: self.args.claim.as_str(),
            batch: self.args.batch,
            concurrency: self.args.concurrency,
            delivered: counts.distinct,
            dead,
            pending,
            lost: good.saturating_sub(accounted) + poison_gone,
            duplicates: counts.duplicates,
            recovered_percent: counts.distinct as f64 * 100.0 / good.max(1) as f64,
            // Each poison event causes one failed attempt of its own: the one that the API
            // rejected.
            attempts_spent_by_outage: (samples.metric(telemetry::FAILED) as u64)
                .saturating_sub(dead_poison),
            requests_during_outage: 0,
            outage_s: 0.0,
            recovery_s: 0.0,
            events_per_s: 0.0,
            limit_events_per_s: 0.0,
            ratio: 0.0,
            balanced: ledger.iter().all(LedgerWindow::balanced),
            targets: Vec::new(),
            passed: false,
        })
    }
}

fn relay_outcome(ended: Result<Result<(), RelayError>, JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(outcome) => Ok(outcome?),
        Err(error) => Err(Failure::Partly(format!("the relay ended with {error}"))),
    }
}

fn bar(title: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg:>9} {bar:40} {human_pos}/{human_len}  {per_sec}  {eta} left",
    );
    let bar = ProgressBar::new(total).with_message(title);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use postrider_store::ClaimMode;

    use super::*;

    fn args(events: u64, poison: u64) -> N19Args {
        N19Args {
            events: Some(events),
            rps: 100,
            outage: Duration::from_secs(60),
            scale: 1,
            poison,
            claim: ClaimMode::Rows,
            batch: 100,
            concurrency: 1,
            json: false,
            report: None,
        }
    }

    #[test]
    fn poison_is_as_much_as_asked_for() {
        for (events, poison) in [(1, 0), (1, 1), (1_000, 52), (777, 776), (50_000, 52)] {
            let args = args(events, poison);
            let run = Run::plan(&args).unwrap();
            let found = (0..events).filter(|number| run.is_poison(*number)).count() as u64;
            assert_eq!(found, poison, "{events}");
        }
        assert!(Run::plan(&args(5, 6)).is_err());
    }
}
