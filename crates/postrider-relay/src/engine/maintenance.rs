//! Maintenance of an outbox, by the oldest of the relays that serve it. Every relay recovers the
//! rows of its own outboxes; the leader of all relays removes dead relays from the list.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use jiff::tz::AmbiguousOffset;
use postrider::Outbox;
use postrider_store::{Database, Recovery, Retention, Share, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::alerts::{Alert, Severity};
use crate::config::{OutboxConfig, RelayConfig};
use crate::delivery::safety_net::SafetyNet;
use crate::engine::shares::ShareWatch;
use crate::lease::Membership;
use crate::telemetry::{self, label};
use crate::timer::Every;

/// Wait after a failed clean-up.
const CLEAN_UP_REPEAT: Duration = Duration::from_secs(600);

pub(crate) struct Maintenance {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) config: RelayConfig,
    pub(crate) outboxes: Vec<OutboxConfig>,
    pub(crate) safety_net: Arc<SafetyNet>,
}

/// Since when nothing has been left to recover from each dead relay.
///
/// A recovery skips rows that are locked at that moment. If their relay were removed from the list
/// after the first pass, those rows would be recovered only after the stall time.
#[derive(Debug, Default)]
struct Wakes(HashMap<String, Instant>);

impl Wakes {
    /// Updates the set of dead relays; relays that have been removed from the list, by any relay,
    /// are dropped.
    fn attend(&mut self, dead: &[String]) {
        self.0.retain(|relay, _| dead.contains(relay));
        for relay in dead {
            self.0.entry(relay.clone()).or_insert_with(Instant::now);
        }
    }

    /// Restarts the quiet time of all dead relays, because rows were found. Whose they were is not
    /// known.
    fn disturb(&mut self) {
        self.0.values_mut().for_each(|since| *since = Instant::now());
    }

    /// Returns whether nothing of this relay has been found for `time`.
    fn is_quiet(&self, relay: &str, time: Duration) -> bool {
        self.0.get(relay).is_some_and(|since| since.elapsed() >= time)
    }
}

impl Maintenance {
    /// Runs until the task is aborted.
    pub(crate) async fn run(&self, mut memberships: watch::Receiver<Membership>) {
        let mut recover = Every::new(self.config.recover_every);
        let mut fold = Every::new(self.config.fold_every);
        let mut marked = Every::new(self.config.move_marked_every);
        let mut clean_up_at = next_clean_up(&self.config, Utc::now());
        let mut wakes = Wakes::default();
        let (mut shares, mut missed) = (ShareWatch::default(), HashSet::new());
        let shortest = self.config.fold_every.min(self.config.move_marked_every);
        loop {
            tokio::select! {
                biased;
                _ = memberships.changed() => {}
                () = tokio::time::sleep(shortest) => {}
            }
            let membership = memberships.borrow_and_update().clone();
            self.look_for_unserved_shares(&membership, &mut shares, &mut missed);
            // The leader recovers until it has removed the dead relays from the list, the others
            // until nothing is left.
            let lease = self.config.lease;
            let news =
                membership.dead.iter().any(|id| membership.leader || !wakes.is_quiet(id, lease));
            if news || recover.due() {
                self.log("recovery", self.recover(&membership, &mut wakes).await);
            }
            let led = |config: &&OutboxConfig| membership.leads(config.outbox.name());
            let led: Vec<&OutboxConfig> = self.outboxes.iter().filter(led).collect();
            if fold.due() {
                self.log("folding the ledger", self.fold(&led).await);
                if membership.leader {
                    self.log("folding the consumers' ledgers", self.fold_inbox().await);
                }
            }
            if marked.due() {
                self.log("moving marked rows", self.move_marked(&led).await);
            }
            clean_up_at = not_later(clean_up_at, &self.config, Utc::now());
            if Utc::now() >= clean_up_at {
                let mut cleaned = self.clean_up(&led).await;
                if membership.leader {
                    cleaned = self.clean_inbox().await.and(cleaned);
                }
                clean_up_at = match cleaned {
                    Ok(()) => next_clean_up(&self.config, Utc::now()),
                    Err(_) => Utc::now() + CLEAN_UP_REPEAT,
                };
                self.log("clean-up", cleaned);
            }
        }
    }

    fn log(&self, job: &str, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(job, %error, "maintenance failed; it is tried again");
        }
    }

    /// Alerts about shares that no live relay serves. Their rows would wait forever while
    /// everything looks healthy.
    fn look_for_unserved_shares(
        &self,
        membership: &Membership,
        watch: &mut ShareWatch,
        missed: &mut HashSet<(String, Share)>,
    ) {
        let alerts = &self.safety_net.alerts;
        let kind = |name: &str, share: Share| format!("unserved-share/{name}/{}", share.index);
        for config in self.outboxes.iter().filter(|config| config.share != Share::WHOLE) {
            let name = config.outbox.name();
            if !membership.leads(name) {
                continue;
            }
            let served: Vec<Share> =
                membership.entries(name).map(|(_, serving)| serving.share).collect();
            let unserved = watch.look(name, config.share.of, &served, Instant::now());
            missed.retain(|(outbox, share)| {
                let over = outbox == name && !unserved.contains(share);
                if over {
                    let Share { of, index } = *share;
                    let title = format!("Outbox {name}: share {index} of {of} is served again");
                    alerts.end(kind(name, *share), title);
                }
                !over
            });
            for share in unserved {
                let Share { of, index } = share;
                missed.insert((name.to_owned(), share));
                alerts.begin(Alert {
                    severity: Severity::Critical,
                    kind: kind(name, share),
                    title: format!("Outbox {name}: no relay serves share {index} of {of}"),
                    fields: vec![(
                        "fix",
                        format!("start a relay with share = {{ of = {of}, index = {index} }}"),
                    )],
                    event: None,
                });
            }
        }
    }

    /// Recovers rows of dead relays at once, and rows of relays that are not on the list after the
    /// stall time.
    async fn recover(&self, membership: &Membership, wakes: &mut Wakes) -> Result<(), StoreError> {
        wakes.attend(&membership.dead);
        let mut result = Ok(());
        for outbox in &self.outboxes {
            // A failure of one outbox must not stop the others, here and below.
            match self.recover_one(outbox, membership).await {
                Ok(0) => {}
                Ok(_) => wakes.disturb(),
                Err(error) => {
                    wakes.disturb();
                    result = Err(error);
                }
            }
        }
        result?;
        // Only after all rows are recovered: the list shows whose rows they are.
        for relay in membership
            .dead
            .iter()
            .filter(|relay| membership.leader && wakes.is_quiet(relay, self.config.lease))
        {
            self.store.remove_relay(relay).await?;
        }
        Ok(())
    }

    async fn recover_one(
        &self,
        config: &OutboxConfig,
        membership: &Membership,
    ) -> Result<u64, StoreError> {
        let outbox = &config.outbox;
        let recovery = Recovery {
            dead: &membership.dead,
            live: &membership.live,
            stalled_after: self.config.stalled_after,
        };
        let rows = self.store.recover(outbox, &recovery).await?;
        metrics::counter!(telemetry::STALLED_RECOVERED, label::OUTBOX => outbox.name().to_owned())
            .increment(rows);
        if rows > 0 {
            tracing::warn!(outbox = outbox.name(), rows, "stalled events recovered");
            if config.preset.alerts.stalled_recovered {
                self.report_recovered(outbox, rows);
            }
        }
        Ok(rows)
    }

    fn report_recovered(&self, outbox: &Outbox, rows: u64) {
        let name = outbox.name();
        self.safety_net.alerts.raise(Alert {
            severity: Severity::Info,
            kind: format!("stalled-recovered/{name}"),
            title: format!("Outbox {name}: {rows} events of relays that died were recovered"),
            fields: vec![("events", rows.to_string())],
            event: None,
        });
    }

    async fn fold(&self, led: &[&OutboxConfig]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for outbox in led {
            result = self.fold_one(outbox).await.and(result);
        }
        result
    }

    async fn fold_one(&self, config: &OutboxConfig) -> Result<(), StoreError> {
        let outbox = &config.outbox;
        self.store.fold_ledger(outbox, self.config.chunk).await?;
        // Fills in fingerprints of dead letters that a relay of an older version wrote; there are
        // rarely any.
        self.store.fingerprint_dead_letters(outbox, self.config.chunk).await?;
        let read_at = Instant::now();
        let statistics = self.store.statistics(outbox).await?;
        self.safety_net.report_unresolved(outbox, read_at, statistics.unresolved);
        let gauge = |metric, value: i64| {
            metrics::gauge!(metric, label::OUTBOX => outbox.name().to_owned()).set(value as f64);
        };
        gauge(telemetry::PENDING, statistics.pending);
        gauge(telemetry::DLQ_UNRESOLVED, statistics.unresolved);
        gauge(telemetry::OLDEST_AGE, statistics.oldest_age_s.unwrap_or(0));
        Ok(())
    }

    async fn fold_inbox(&self) -> Result<(), StoreError> {
        self.store.fold_inbox_ledger(self.config.chunk).await.map(|_| ())
    }

    /// Cleans up the inboxes. They do not belong to any outbox, so the leader of all relays does
    /// it.
    async fn clean_inbox(&self) -> Result<(), StoreError> {
        let retention = self.config.inbox_retention;
        let cleaned = self.store.clean_inbox(None, retention, self.config.chunk).await?;
        tracing::info!(?cleaned, "inboxes cleaned up");
        Ok(())
    }

    async fn move_marked(&self, led: &[&OutboxConfig]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for outbox in led {
            result = self.move_marked_one(&outbox.outbox).await.and(result);
        }
        result
    }

    async fn move_marked_one(&self, outbox: &Outbox) -> Result<(), StoreError> {
        loop {
            let moved = self.store.move_marked(outbox, self.config.chunk).await?;
            if moved.is_empty() {
                return Ok(());
            }
            let rows = moved.len();
            tracing::info!(outbox = outbox.name(), rows, "marked rows moved to the dead letters");
            self.safety_net.close(outbox, &moved).await;
            self.store.fingerprint_dead_letters(outbox, self.config.chunk).await?;
        }
    }

    async fn clean_up(&self, led: &[&OutboxConfig]) -> Result<(), StoreError> {
        let mut result = Ok(());
        for outbox in led {
            result = self.clean_up_one(outbox).await.and(result);
        }
        result
    }

    async fn clean_up_one(&self, outbox: &OutboxConfig) -> Result<(), StoreError> {
        let retention = Retention {
            archive: outbox.preset.retention,
            resolved: outbox.preset.retention,
            dedupe: outbox.dedupe,
            chunk: self.config.chunk,
        };
        let cleaned = self.store.clean_up(&outbox.outbox, &retention).await?;
        tracing::info!(outbox = outbox.outbox.name(), ?cleaned, "cleaned up");
        // After the request ids: while a delivered row exists, its own unique index refuses a
        // duplicate. Once it is gone, only the outbox does, and only as long as it is configured to
        // remember.
        if let Some(adoption) = &outbox.adoption {
            let (age, chunk) = (outbox.preset.retention, self.config.chunk);
            let rows = self.store.clean_adopted(&outbox.outbox, adoption, age, chunk).await?;
            let table = &adoption.table;
            tracing::info!(outbox = outbox.outbox.name(), table, rows, "delivered rows deleted");
        }
        Ok(())
    }
}

/// Returns when a planned clean-up is due. A clock that was months ahead and then set back would
/// otherwise leave the next clean-up months away.
fn not_later(planned_at: DateTime<Utc>, config: &RelayConfig, now: DateTime<Utc>) -> DateTime<Utc> {
    planned_at.min(next_clean_up(config, now))
}

/// Returns the next time at which the clock of the configured zone shows the clean-up time.
fn next_clean_up(config: &RelayConfig, now: DateTime<Utc>) -> DateTime<Utc> {
    let tomorrow = now + chrono::Duration::days(1);
    let (hour, minute) = config.clean_up_at;
    let time = jiff::civil::Time::new(hour as i8, minute as i8, 0, 0).unwrap_or_default();
    let Ok(at) = jiff::Timestamp::from_microsecond(now.timestamp_micros()) else { return tomorrow };
    let today = config.time_zone.to_datetime(at).date();
    (0..3)
        .filter_map(|days| today.checked_add(jiff::Span::new().days(days)).ok())
        .map(|day| config.time_zone.to_ambiguous_timestamp(day.to_datetime(time)))
        // A time that the switch to summer time skips does not exist on that day.
        .filter(|at| !matches!(at.offset(), AmbiguousOffset::Gap { .. }))
        .filter_map(|at| DateTime::from_timestamp_micros(at.earlier().ok()?.as_microsecond()))
        .find(|at| *at > now)
        .unwrap_or(tomorrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_removed_only_after_a_quiet_time() {
        let (mut wakes, dead) = (Wakes::default(), ["a".to_owned(), "b".to_owned()]);
        assert!(!wakes.is_quiet("a", Duration::ZERO), "nothing was read yet");
        wakes.attend(&dead);
        assert!(wakes.is_quiet("a", Duration::ZERO));
        assert!(!wakes.is_quiet("a", Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        wakes.disturb();
        assert!(!wakes.is_quiet("a", Duration::from_millis(20)), "counted from the last row");
        wakes.attend(&dead[..1]);
        assert!(!wakes.is_quiet("b", Duration::ZERO), "b is removed");
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_put_the_clean_up_off() {
        let config = RelayConfig::default();
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let due = |planned, now| not_later(at(planned), &config, at(now));
        let tonight = at("2026-01-01T02:00:00Z");
        assert_eq!(due("2026-01-01T02:00:00Z", "2025-12-31T12:00:00Z"), tonight, "as planned");
        assert_eq!(due("2026-01-01T02:00:00Z", "2026-01-01T02:00:01Z"), tonight, "due now");
        assert_eq!(due("2027-06-01T02:00:00Z", "2025-12-31T12:00:00Z"), tonight, "set back");
    }

    #[test]
    fn clean_up_is_at_two_in_the_configured_zone() {
        let at = |zone: &str, now: &str| {
            let time_zone = jiff::tz::TimeZone::get(zone).unwrap();
            let config = RelayConfig { time_zone, ..RelayConfig::default() };
            next_clean_up(&config, now.parse().unwrap()).to_rfc3339()
        };
        assert_eq!(at("UTC", "2026-01-01T01:59:59Z"), "2026-01-01T02:00:00+00:00");
        assert_eq!(at("UTC", "2026-01-01T02:00:00Z"), "2026-01-02T02:00:00+00:00");
        assert_eq!(at("Asia/Seoul", "2026-01-01T00:00:00Z"), "2026-01-01T17:00:00+00:00");
        // 29 March 2026: clocks in Berlin go from 02:00 to 03:00.
        let berlin = "Europe/Berlin";
        assert_eq!(at(berlin, "2026-03-28T12:00:00Z"), "2026-03-30T00:00:00+00:00");
        // 25 October 2026: they go back from 03:00 to 02:00, so 02:00 occurs twice.
        assert_eq!(at(berlin, "2026-10-24T12:00:00Z"), "2026-10-25T00:00:00+00:00");
        assert_eq!(at(berlin, "2026-10-25T00:00:00Z"), "2026-10-26T01:00:00+00:00");
    }
}
