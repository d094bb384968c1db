//! Appends at a fixed rate, whatever the response times (an open loop), and records the times of
//! each event.
//!
//! Event n is due at `n / rate` after the start. A writer takes all events that are due and appends
//! them in one transaction: one event if the database keeps up, more after a stall. A stall
//! therefore neither lowers the rate nor hides behind events that were never sent: events that
//! should have been sent during the stall count from the time at which they were due.
//!
//! Writer w of W has the events `w, w + W, w + 2 W …` and their keys to itself: two concurrent
//! transactions that append to the same key have no order that could be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider_command::Failure;
use tokio::task::JoinSet;

use super::bare::Bare;
use super::event::{Maker, number_in};
use super::stage::Stage;

/// Maximum number of events per append, after a stall.
const CATCH_UP_MAX: u64 = 1_000;

/// The times at which events are due.
#[derive(Debug)]
pub(super) struct Schedule {
    start: Instant,
    rate: f64,
    events: u64,
    pub(super) appended: AtomicU64,
}

impl Schedule {
    pub(super) fn start(rate: u32, events: u64) -> Self {
        Self { start: Instant::now(), rate: f64::from(rate), events, appended: AtomicU64::new(0) }
    }

    fn due_at(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate)
    }
}

/// The events of one writer.
struct Turns<'a> {
    schedule: &'a Schedule,
    writer: u64,
    writers: u64,
    /// Number of events that it has taken so far.
    taken: u64,
}

impl Turns<'_> {
    fn number(&self, turn: u64) -> u64 {
        turn * self.writers + self.writer
    }

    /// Takes the events that are due after `elapsed`, or returns how long to wait; `None` at the
    /// end.
    fn take(&mut self, elapsed: Duration) -> Option<Result<Vec<u64>, Duration>> {
        let Schedule { rate, events, .. } = *self.schedule;
        if self.number(self.taken) >= events {
            return None;
        }
        let due = ((elapsed.as_secs_f64() * rate) as u64 + 1).min(events);
        let turns = (self.taken..self.taken + CATCH_UP_MAX).map(|turn| self.number(turn));
        let numbers: Vec<u64> = turns.take_while(|number| *number < due).collect();
        if numbers.is_empty() {
            let due_at = self.schedule.due_at(self.number(self.taken));
            return Some(Err(due_at.saturating_sub(elapsed)));
        }
        self.taken += numbers.len() as u64;
        Some(Ok(numbers))
    }
}

/// The times at which each event was due, committed and delivered.
#[derive(Debug)]
pub(super) struct Times {
    start: Instant,
    rate: f64,
    /// Microseconds since the start, plus 1; 0 means not yet.
    committed: Vec<AtomicU64>,
    delivered: Vec<AtomicU64>,
}

/// Times of all events in milliseconds, sorted.
pub(super) struct Latencies {
    pub(super) from_commit_ms: Vec<f64>,
    pub(super) from_due_ms: Vec<f64>,
    /// Seconds since the start and milliseconds from commit to delivery, in order of delivery.
    pub(super) over_time: Vec<(f64, f64)>,
}

impl Times {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let none = || (0..schedule.events).map(|_| AtomicU64::new(0)).collect();
        let (start, rate) = (schedule.start, schedule.rate);
        Self { start, rate, committed: none(), delivered: none() }
    }

    fn committed(&self, numbers: &[u64]) {
        for number in numbers {
            self.note(&self.committed, *number as usize);
        }
    }

    pub(super) fn delivered(&self, payload: &str) {
        if let Some(number) = number_in(payload) {
            self.note(&self.delivered, number);
        }
    }

    fn note(&self, times: &[AtomicU64], number: usize) {
        let now = self.start.elapsed().as_micros() as u64 + 1;
        if let Some(time) = times.get(number) {
            time.store(now, Ordering::SeqCst);
        }
    }

    /// Returns the times of the delivered events, except the first ones. A relay may deliver an
    /// event before the writer learns of its own commit; that counts as zero.
    pub(super) fn latencies(&self, warm_up_events: u64) -> Latencies {
        let (mut from_commit_ms, mut from_due_ms) = (Vec::new(), Vec::new());
        let mut over_time = Vec::new();
        for (number, (committed, delivered)) in
            self.committed.iter().zip(&self.delivered).enumerate().skip(warm_up_events as usize)
        {
            let (committed, delivered) =
                (committed.load(Ordering::SeqCst), delivered.load(Ordering::SeqCst));
            if committed == 0 || delivered == 0 {
                continue;
            }
            let due = (number as f64 / self.rate * 1e6) as u64;
            let ms = delivered.saturating_sub(committed) as f64 / 1e3;
            from_commit_ms.push(ms);
            from_due_ms.push(delivered.saturating_sub(due) as f64 / 1e3);
            over_time.push((delivered as f64 / 1e6, ms));
        }
        from_commit_ms.sort_by(f64::total_cmp);
        from_due_ms.sort_by(f64::total_cmp);
        over_time.sort_by(|a, b| a.0.total_cmp(&b.0));
        Latencies { from_commit_ms, from_due_ms, over_time }
    }
}

/// Running writers; dropping this value ends them.
pub(super) struct Writers(JoinSet<Result<(), Failure>>);

impl Writers {
    pub(super) async fn start(
        stage: &Stage,
        outbox: &Outbox,
        maker: &Maker,
        (schedule, times): (&Arc<Schedule>, Option<&Arc<Times>>),
        writers: u32,
    ) -> Result<Self, Failure> {
        let bare = Bare::connect(&stage.url, writers).await?;
        let writers = u64::from(writers).min(maker.keys());
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let (bare, outbox) = (bare.clone(), outbox.clone());
            let maker = maker.clone().for_writers(writers);
            let (schedule, times) = (Arc::clone(schedule), times.cloned());
            tasks.spawn(async move {
                let turns = Turns { schedule: &schedule, writer, writers, taken: 0 };
                write(&bare, &outbox, &maker, turns, times.as_deref()).await
            });
        }
        Ok(Self(tasks))
    }

    /// Waits until everything is appended and acknowledged.
    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        while let Some(ended) = self.0.join_next().await {
            ended.unwrap_or_else(|error| Err(Failure::Partly(format!("a writer: {error}"))))?;
        }
        Ok(())
    }

    /// Fails if a writer has failed.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.0.try_join_next() {
            ended.unwrap_or_else(|error| Err(Failure::Partly(format!("a writer: {error}"))))?;
        }
        Ok(())
    }
}

async fn write(
    bare: &Bare,
    outbox: &Outbox,
    maker: &Maker,
    mut turns: Turns<'_>,
    times: Option<&Times>,
) -> Result<(), Failure> {
    let schedule = turns.schedule;
    while let Some(taken) = turns.take(schedule.start.elapsed()) {
        match taken {
            Err(wait) => tokio::time::sleep(wait).await,
            Ok(numbers) => {
                let events: Vec<_> = numbers.iter().map(|number| maker.make(*number)).collect();
                drop(bare.appender().append_all(outbox, &events).await?);
                if let Some(times) = times {
                    times.committed(&numbers);
                }
                schedule.appended.fetch_add(numbers.len() as u64, Ordering::SeqCst);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_once_and_a_stall_is_caught_up() {
        let schedule = Schedule::start(1_000, 3_000);
        let mut turns = Turns { schedule: &schedule, writer: 1, writers: 2, taken: 0 };
        let mut at = |ms: u64| turns.take(Duration::from_millis(ms));
        assert_eq!(at(0), Some(Err(Duration::from_millis(1))), "0 is the other writer's");
        assert_eq!(at(1), Some(Ok(vec![1])));
        assert_eq!(at(6), Some(Ok(vec![3, 5])));
        let Some(Ok(numbers)) = at(2_500) else { panic!("behind") };
        assert_eq!((numbers[0], numbers.len()), (7, 1_000), "at most so many in one append");
        let Some(Ok(numbers)) = at(9_000) else { panic!("still behind") };
        assert_eq!((numbers[0], numbers.last()), (2_007, Some(&2_999)));
        assert_eq!(at(9_000), None, "the end");
    }

    #[test]
    fn an_event_that_was_sent_late_counts_from_its_time() {
        let schedule = Schedule::start(1_000, 3);
        let times = Times::of(&schedule);
        for (number, committed_us, delivered_us) in [(0, 500, 2_500), (1, 9_000, 8_500)] {
            times.committed[number].store(committed_us + 1, Ordering::SeqCst);
            times.delivered[number].store(delivered_us + 1, Ordering::SeqCst);
        }
        let found = times.latencies(0);
        assert_eq!(found.from_commit_ms, [0.0, 2.0], "delivered before its writer heard: 0");
        assert_eq!(found.from_due_ms.len(), 2, "what was not delivered has no time");
        assert!((found.from_due_ms[1] - 7.5).abs() < 0.01, "{:?}", found.from_due_ms);
    }
}
