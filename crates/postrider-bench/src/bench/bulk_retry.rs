//! `postrider bench bulk-retry`: retries dead letters by filter. One job runs at full speed;
//! another has a rate, dies half-way and is resumed. Then everything is delivered and counted.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use postrider::Outbox;
use postrider_command::Failure;
use postrider_command::output::number;
use postrider_relay::{Batch, OutboxConfig, Outcome, Preset, Relay, RelayConfig, Sink, SinkError};
use postrider_store::{CountLimit, DlqFilter, Event, Job, JobRunner, JobState, JobWork, NewJob};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::details;
use super::event::{Maker, number_in};
use super::facts::{Facts, Speed};
use super::letters::fill_dead_letters;
use super::machine::resident_bytes;
use super::numbers::{rounded, thinned};
use super::relays::{POINTS_MAX, balanced};
use super::report::{Axis, Lines, Plot, Report};
use super::stage::{Stage, bar};
use crate::cli::BulkRetryArgs;

/// The errors of the first job's dead letters, of the second job's, and of those that neither job
/// retries.
const ERRORS: [&str; 3] =
    ["the bridge is out", "the road is closed", "nobody lives at this address"];
const OPERATOR: &str = "bench";
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time limit for delivering the retried events.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Serialize)]
struct Details {
    letters: u64,
    payload_bytes: u32,
    keys: u64,
    #[serde(flatten)]
    speed: Speed,
    rate: u32,
    /// Maximum number of entries done within any second by a runner of the second job.
    most_in_a_second: i64,
    /// Whether no runner ever did more than the rate allows since its start, plus one step.
    rate_kept: bool,
    /// Entries done by the second job when it was resumed after its runner had died.
    interrupted_at: i64,
    lost: u64,
    doubled: u64,
    /// Dead letters that did not match the filters, and are still unresolved.
    left_alone: i64,
    /// Memory growth of the process that worked on the jobs.
    rss_growth_mb: f64,
    rss_max_mb: f64,
    balanced: bool,
}

pub(super) async fn bulk_retry(stage: &Stage, args: &BulkRetryArgs) -> Result<Report, Failure> {
    let maker = Maker::new(args.event.keys, args.event.payload);
    let outbox = stage.outbox("").await?;
    fill_dead_letters(stage, &outbox, &maker, 3 * args.letters, &ERRORS).await?;
    let rss_before = resident_bytes();

    let job = create_job(stage, &outbox, ERRORS[0], None).await?;
    let full = Run::new(stage, &outbox, job).finish().await?;
    let job = create_job(stage, &outbox, ERRORS[1], Some(args.rate)).await?;
    let died = Run::new(stage, &outbox, job).die_at(args.letters / 2).await?;
    stage.store.stop_job(job, OPERATOR, "its runner died").await?;
    let interrupted_at = stage.store.resume_job(job, OPERATOR, "go on").await?.done_count;
    let resumed = Run::new(stage, &outbox, job).finish().await?;
    let runs = [("full speed", full), ("with a rate", died), ("resumed", resumed)];
    let rss_max = runs.iter().map(|(_, run)| run.rss_max_bytes).max().unwrap_or(0);

    let (lost, doubled) = deliver(stage, &outbox, 2 * args.letters).await?;
    let left_alone =
        stage.store.preview_job(&outbox, &retry(ERRORS[2]), CountLimit::NONE).await?.count;
    let balanced = balanced(stage, &outbox).await?;
    stage.drop_outbox(&outbox).await?;

    let limit = append_rate(stage, &maker, args.letters).await?;
    let mb = |bytes: u64| rounded(bytes as f64 / 1e6, 1);
    let paces = runs[1..].iter().map(|(_, run)| pace(&run.steps, args.rate));
    let (most_in_a_second, rate_kept) =
        paces.fold((0, true), |all, one| (all.0.max(one.0), all.1 && one.1));
    let details = Details {
        letters: args.letters,
        payload_bytes: args.event.payload,
        keys: args.event.keys,
        speed: Speed::new(args.letters, runs[0].1.seconds(), limit),
        rate: args.rate,
        most_in_a_second,
        rate_kept,
        interrupted_at,
        lost,
        doubled,
        left_alone,
        rss_growth_mb: mb(rss_max.saturating_sub(rss_before)),
        rss_max_mb: mb(rss_max),
        balanced,
    };
    report(stage, details, &runs).await
}

/// Builds the work that retries the dead letters with this error.
fn retry(error: &str) -> JobWork {
    JobWork::DlqRetry {
        filter: DlqFilter { error: Some(error.to_owned()), ..DlqFilter::default() },
    }
}

async fn create_job(
    stage: &Stage,
    outbox: &Outbox,
    error: &str,
    rate: Option<u32>,
) -> Result<i64, Failure> {
    let job = NewJob {
        work: retry(error),
        operator: OPERATOR.to_owned(),
        note: "measured".to_owned(),
        rate,
        canary: None,
        request_key: None,
    };
    Ok(stage.store.create_job(outbox, &job).await?.id)
}

/// The observed progress of one runner on a job.
struct Run<'a> {
    stage: &'a Stage,
    outbox: &'a Outbox,
    job: i64,
    started: Instant,
    /// Seconds since the start, and the number of entries done so far.
    steps: Vec<(f64, i64)>,
    rss_max_bytes: u64,
}

impl<'a> Run<'a> {
    fn new(stage: &'a Stage, outbox: &'a Outbox, job: i64) -> Self {
        let (started, steps) = (Instant::now(), Vec::new());
        Self { stage, outbox, job, started, steps, rss_max_bytes: 0 }
    }

    fn runner(&self) -> JobRunner {
        JobRunner::new(Arc::clone(&self.stage.store), vec![self.outbox.clone()], "bench")
    }

    fn note(&mut self, job: &Job) {
        self.steps.push((self.started.elapsed().as_secs_f64(), job.done_count));
        self.rss_max_bytes = self.rss_max_bytes.max(resident_bytes());
    }

    async fn finish(mut self) -> Result<Self, Failure> {
        let runner = self.runner();
        let job = runner.run(self.job, &mut |job| self.note(job)).await?;
        match job.map(|job| (job.state, job.reason)) {
            Some((JobState::Done, _)) => Ok(self),
            other => Err(Failure::Partly(format!("job {} ended as {other:?}", self.job))),
        }
    }

    /// Drops the runner when the job has come this far, as in a crash: the database is not
    /// notified.
    async fn die_at(mut self, done: u64) -> Result<Self, Failure> {
        let half_way = CancellationToken::new();
        let runner = self.runner();
        let job = self.job;
        let mut note = |job: &Job| {
            self.note(job);
            if u64::try_from(job.done_count).is_ok_and(|so_far| so_far >= done) {
                half_way.cancel();
            }
        };
        tokio::select! {
            _ = runner.run(job, &mut note) => {
                let why = "the job was over before it could be interrupted: more --letters";
                Err(Failure::Partly(why.to_owned()))
            }
            () = half_way.cancelled() => Ok(()),
        }?;
        Ok(self)
    }

    fn seconds(&self) -> f64 {
        self.steps.last().map_or(0.0, |(at, _)| *at)
    }
}

/// Returns the maximum number of entries done within a second, and whether no step came too early:
/// since its start, the runner has never done more than the rate allows plus one step.
fn pace(steps: &[(f64, i64)], rate: u32) -> (i64, bool) {
    let (mut most, mut from) = (0, 0);
    for (at, done) in steps {
        while at - steps[from].0 > 1.0 {
            from += 1;
        }
        most = most.max(done - steps[from].1);
    }
    let step = steps.windows(2).map(|pair| pair[1].1 - pair[0].1).max().unwrap_or(0);
    let (began, before) = steps.first().copied().unwrap_or_default();
    let allowed = |at: f64| (at - began) * f64::from(rate) + step as f64;
    (most, steps.iter().all(|(at, done)| (done - before) as f64 <= allowed(*at)))
}

/// Delivers the events in the outbox. Returns how many of the expected events never arrived, and
/// how many arrived again.
async fn deliver(stage: &Stage, outbox: &Outbox, expected: u64) -> Result<(u64, u64), Failure> {
    let receiver = Arc::new(Receiver::default());
    let sink: Arc<dyn Sink> = Arc::clone(&receiver) as _;
    let config = OutboxConfig::new(outbox.clone(), Preset::broker(), sink);
    let relay = Relay::new(stage.another_store().await?, RelayConfig::default()).outbox(config);
    let stop = stage.stop.child_token();
    let relay = stage.running.spawn(relay.run(stop.clone()));
    let (bar, started) = (bar("delivering", expected), Instant::now());
    while stage.store.statistics(outbox).await?.pending > 0 {
        bar.set_position(receiver.distinct_and_repeated().0);
        if relay.is_finished() || started.elapsed() > PATIENCE {
            return Err(Failure::Partly("what was sent again is not delivered".to_owned()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bar.finish_and_clear();
    stop.cancel();
    relay.await.map_err(|error| Failure::Partly(format!("the relay ended with {error}")))??;
    let (distinct, repeated) = receiver.distinct_and_repeated();
    Ok((expected.saturating_sub(distinct), repeated))
}

/// Measures the rate of appending this many events: a retry cannot take less.
async fn append_rate(stage: &Stage, maker: &Maker, events: u64) -> Result<f64, Failure> {
    let copy = stage.outbox("_limit").await?;
    let started = Instant::now();
    stage.fill(&copy, maker, events).await?;
    let seconds = started.elapsed().as_secs_f64();
    stage.drop_outbox(&copy).await?;
    Ok(events as f64 / seconds)
}

/// A sink that accepts everything, and identifies each event by the number in its payload: an event
/// that was retried twice has two row ids.
#[derive(Default)]
struct Receiver {
    seen: Mutex<(HashSet<usize>, u64)>,
}

impl Receiver {
    fn distinct_and_repeated(&self) -> (u64, u64) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.0.len() as u64, seen.1)
    }
}

#[async_trait]
impl Sink for Receiver {
    fn name(&self) -> &str {
        "receiver"
    }

    fn destination<'a>(&'a self, _event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed("receiver")
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for event in batch.events {
            let fresh = number_in(&event.payload).is_some_and(|number| seen.0.insert(number));
            seen.1 += u64::from(!fresh);
        }
        vec![Outcome::Delivered; batch.events.len()]
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}

async fn report(
    stage: &Stage,
    found: Details,
    runs: &[(&'static str, Run<'_>)],
) -> Result<Report, Failure> {
    let count = |value: i64| number(value);
    let yes = |right: bool| if right { "yes" } else { "NO" }.to_owned();
    let Speed { events_per_s, limit_events_per_s, ratio, .. } = found.speed;
    let series = runs.iter().map(|(name, run)| {
        let points: Vec<_> = run.steps.iter().map(|(at, done)| (*at, *done as f64)).collect();
        ((*name).into(), thinned(&points, POINTS_MAX))
    });
    let wrong = [
        (found.lost > 0, "events were lost"),
        (found.doubled > 0, "events were sent twice"),
        (!found.rate_kept, "the rate was not kept"),
        (u64::try_from(found.left_alone) != Ok(found.letters), "others were sent, too"),
        (!found.balanced, "the ledger does not balance"),
    ];
    let wrong: Vec<&str> = wrong.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
    Ok(Report {
        facts: Facts::gather("bulk-retry", stage).await?,
        headline: format!("{} dead letters sent again per second", number(events_per_s as i128)),
        against: format!("of plain appends ({} events/s)", number(limit_events_per_s as i128)),
        ratio,
        figures: vec![
            ("dead letters".to_owned(), format!("2 jobs of {}", number(found.letters))),
            (
                "with a rate".to_owned(),
                format!(
                    "{} per second: at most {} in one, kept: {}",
                    number(found.rate),
                    count(found.most_in_a_second),
                    yes(found.rate_kept)
                ),
            ),
            ("interrupted at".to_owned(), count(found.interrupted_at)),
            ("lost, sent twice".to_owned(), format!("{}, {}", found.lost, found.doubled)),
            ("others left alone".to_owned(), count(found.left_alone)),
            (
                "resident memory".to_owned(),
                format!("{} MB, {} MB more than before", found.rss_max_mb, found.rss_growth_mb),
            ),
            ("ledger balanced".to_owned(), yes(found.balanced)),
        ],
        plots: vec![Plot::Lines(Lines {
            title: "Sent again over time",
            y_unit: "dead letters",
            x: Axis::Seconds,
            series: series.collect(),
        })],
        failure: (!wrong.is_empty()).then(|| Failure::Partly(wrong.join("; "))),
        details: details(&found)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_since_the_start_and_within_each_second() {
        let even: Vec<_> = (0..=20).map(|n| (f64::from(n) * 0.25, i64::from(n) * 25)).collect();
        assert_eq!(pace(&even, 100), (100, true));
        let hasty: Vec<_> = (0..=20).map(|n| (f64::from(n) * 0.2, i64::from(n) * 25)).collect();
        assert_eq!(pace(&hasty, 100), (125, false));
        assert_eq!(pace(&[], 100), (0, true));
    }
}
