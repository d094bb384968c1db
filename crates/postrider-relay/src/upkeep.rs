//! House-keeping, by the leader among the relays.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, NaiveTime, TimeZone, Utc};
use postrider::StoreError;
use postrider::store::{Database, Recovery, Retention};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{OutboxConfig, RelayConfig};
use crate::heart::Roll;
use crate::safety_net::SafetyNet;
use crate::telemetry;

pub(crate) struct Upkeep {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) config: RelayConfig,
    pub(crate) outboxes: Vec<OutboxConfig>,
    pub(crate) safety_net: Arc<SafetyNet>,
}

/// Something that is done every so often.
struct Every {
    period: Duration,
    last: Instant,
}

impl Every {
    fn new(period: Duration) -> Self {
        Self { period, last: Instant::now() }
    }

    fn due(&mut self) -> bool {
        let due = self.last.elapsed() >= self.period;
        if due {
            self.last = Instant::now();
        }
        due
    }
}

/// Since when nothing of each dead relay has been left to recover.
///
/// A recovery passes over rows that somebody has locked at that moment. If their relay were buried
/// after the first pass, it would be on no list any more, and they would wait for the stall time.
#[derive(Debug, Default)]
struct Wakes(HashMap<String, Instant>);

impl Wakes {
    /// These are the dead; the others have been buried, by whomever.
    fn attend(&mut self, dead: &[String]) {
        self.0.retain(|relay, _| dead.contains(relay));
        for relay in dead {
            self.0.entry(relay.clone()).or_insert_with(Instant::now);
        }
    }

    /// Rows were found. Whose they were is not known.
    fn disturb(&mut self) {
        self.0.values_mut().for_each(|since| *since = Instant::now());
    }

    /// Relays of which nothing was found for that time.
    fn quiet_for(&self, time: Duration) -> Vec<String> {
        let quiet = self.0.iter().filter(|(_, since)| since.elapsed() >= time);
        quiet.map(|(relay, _)| relay.clone()).collect()
    }
}

impl Upkeep {
    pub(crate) async fn run(&self, mut rolls: watch::Receiver<Roll>, stop: CancellationToken) {
        let mut recover = Every::new(self.config.recover_every);
        let mut fold = Every::new(self.config.fold_every);
        let mut marked = Every::new(self.config.move_marked_every);
        let mut clean_up_at = next_clean_up(&self.config, Utc::now());
        let mut wakes = Wakes::default();
        let shortest = self.config.fold_every.min(self.config.move_marked_every);
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = rolls.changed() => {}
                () = tokio::time::sleep(shortest) => {}
            }
            let roll = rolls.borrow_and_update().clone();
            if !roll.leader {
                continue;
            }
            if !roll.dead.is_empty() || recover.due() {
                self.log("recovery", self.recover(&roll, &mut wakes).await);
            }
            if fold.due() {
                self.log("folding the books", self.fold().await);
            }
            if marked.due() {
                self.log("moving marked rows", self.move_marked().await);
            }
            if Utc::now() >= clean_up_at {
                self.log("clean-up", self.clean_up().await);
                clean_up_at = next_clean_up(&self.config, Utc::now());
            }
        }
    }

    fn log(&self, job: &str, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(job, %error, "upkeep failed; it is tried again");
        }
    }

    /// Rows of dead relays at once, rows of relays on no list after the stall time.
    async fn recover(&self, roll: &Roll, wakes: &mut Wakes) -> Result<(), StoreError> {
        let recovery = Recovery {
            dead: &roll.dead,
            live: &roll.live,
            stalled_after: self.config.stalled_after,
        };
        wakes.attend(&roll.dead);
        for outbox in &self.outboxes {
            let name = outbox.outbox.name();
            let rows = self.store.recover(&outbox.outbox, &recovery).await?;
            metrics::counter!(telemetry::STALLED_RECOVERED, "outbox" => name.to_owned())
                .increment(rows);
            if rows > 0 {
                tracing::warn!(outbox = name, rows, "stalled events recovered");
                wakes.disturb();
            }
        }
        for relay in wakes.quiet_for(self.config.lease) {
            self.store.bury(&relay).await?;
        }
        Ok(())
    }

    async fn fold(&self) -> Result<(), StoreError> {
        for outbox in &self.outboxes {
            self.store.fold_books(&outbox.outbox, self.config.chunk).await?;
            let statistics = self.store.statistics(&outbox.outbox).await?;
            let name = outbox.outbox.name().to_owned();
            let gauge = |metric, value: i64| {
                metrics::gauge!(metric, "outbox" => name.clone()).set(value as f64);
            };
            gauge(telemetry::PENDING, statistics.pending);
            gauge(telemetry::DLQ_UNRESOLVED, statistics.unresolved);
            gauge(telemetry::OLDEST_AGE, statistics.oldest_age_s.unwrap_or(0));
        }
        Ok(())
    }

    async fn move_marked(&self) -> Result<(), StoreError> {
        for outbox in &self.outboxes {
            loop {
                let ids = self.store.move_marked(&outbox.outbox, self.config.chunk).await?;
                if ids.is_empty() {
                    break;
                }
                tracing::info!(
                    outbox = outbox.outbox.name(),
                    rows = ids.len(),
                    "marked rows moved to the dead letters"
                );
                self.safety_net.close(&outbox.outbox, &ids).await;
            }
        }
        Ok(())
    }

    async fn clean_up(&self) -> Result<(), StoreError> {
        for outbox in &self.outboxes {
            let retention = Retention {
                archive: outbox.preset.retention,
                resolved: outbox.preset.retention,
                dedupe: outbox.dedupe,
                chunk: self.config.chunk,
            };
            let cleaned = self.store.clean_up(&outbox.outbox, &retention).await?;
            tracing::info!(outbox = outbox.outbox.name(), ?cleaned, "cleaned up");
        }
        Ok(())
    }
}

/// The next time that the clock of the configured zone shows the clean-up time.
fn next_clean_up(config: &RelayConfig, now: DateTime<Utc>) -> DateTime<Utc> {
    let (hour, minute) = config.clean_up_at;
    let time = NaiveTime::from_hms_opt(hour, minute, 0).unwrap_or_default();
    let today = now.with_timezone(&config.time_zone).date_naive();
    (0..3)
        .filter_map(|day| today.checked_add_days(chrono::Days::new(day)))
        // A time that a change of summer time skips does not exist that day.
        .filter_map(|day| config.time_zone.from_local_datetime(&day.and_time(time)).earliest())
        .map(|at| at.with_timezone(&Utc))
        .find(|at| *at > now)
        .unwrap_or(now + chrono::Duration::days(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_buried_only_after_a_quiet_time() {
        let (mut wakes, dead) = (Wakes::default(), ["a".to_owned(), "b".to_owned()]);
        wakes.attend(&dead);
        assert!(wakes.quiet_for(Duration::from_secs(60)).is_empty());
        assert_eq!(wakes.quiet_for(Duration::ZERO).len(), 2);
        std::thread::sleep(Duration::from_millis(20));
        wakes.disturb();
        assert!(wakes.quiet_for(Duration::from_millis(20)).is_empty(), "counted from the last row");
        wakes.attend(&dead[..1]);
        assert_eq!(wakes.quiet_for(Duration::ZERO), ["a"], "b is buried");
    }

    #[test]
    fn clean_up_is_at_two_in_the_configured_zone() {
        let at = |zone: chrono_tz::Tz, now: &str| {
            let config = RelayConfig { time_zone: zone, ..RelayConfig::default() };
            next_clean_up(&config, now.parse().unwrap()).to_rfc3339()
        };
        let utc = chrono_tz::UTC;
        assert_eq!(at(utc, "2026-01-01T01:59:59Z"), "2026-01-01T02:00:00+00:00");
        assert_eq!(at(utc, "2026-01-01T02:00:00Z"), "2026-01-02T02:00:00+00:00");
        assert_eq!(at(chrono_tz::Asia::Seoul, "2026-01-01T00:00:00Z"), "2026-01-01T17:00:00+00:00");
        // 29 March 2026: Berlin's clocks go from 02:00 to 03:00.
        let berlin = chrono_tz::Europe::Berlin;
        assert_eq!(at(berlin, "2026-03-28T12:00:00Z"), "2026-03-30T00:00:00+00:00");
    }
}
