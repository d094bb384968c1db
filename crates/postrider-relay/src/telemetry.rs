//! Names of all metrics, in one place.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Events that are PENDING, PROCESSING or FAILED (gauge, from the books).
pub const PENDING: &str = "postrider_outbox_pending";
/// Age of the oldest live event (gauge, seconds).
pub const OLDEST_AGE: &str = "postrider_outbox_oldest_age_seconds";
/// Dead letters that nobody resolved (gauge).
pub const DLQ_UNRESOLVED: &str = "postrider_outbox_dlq_unresolved";
/// Events claimed.
pub const CLAIMED: &str = "postrider_outbox_claimed_total";
/// Events delivered and settled.
pub const PROCESSED: &str = "postrider_outbox_processed_total";
/// Attempts spent without delivery.
pub const FAILED: &str = "postrider_outbox_failed_total";
/// Events given back without spending an attempt.
pub const DEFERRED: &str = "postrider_outbox_deferred_total";
/// Events moved to the dead letters (first rung), by event type and reason.
pub const DLQ: &str = "postrider_outbox_dlq_total";
/// Events whose content does not fit their hash.
pub const INTEGRITY_FAILURE: &str = "postrider_outbox_integrity_failure_total";
/// Events recovered from relays that died.
pub const STALLED_RECOVERED: &str = "postrider_outbox_stalled_recovered_total";
/// Dead letters written to the backup file (second rung).
pub const BACKUP: &str = "postrider_outbox_backup_total";
/// Dead letters that neither the table nor the file could take (third rung).
pub const CRITICAL: &str = "postrider_outbox_critical_failure_total";
/// Settled rows that were not this relay's any more.
pub const FENCED: &str = "postrider_outbox_fenced_total";
/// Duration of a claim (seconds).
pub const CLAIM_SECONDS: &str = "postrider_claim_seconds";
/// Duration of a delivery call (seconds).
pub const DELIVER_SECONDS: &str = "postrider_deliver_seconds";
/// Duration of a settle (seconds).
pub const SETTLE_SECONDS: &str = "postrider_settle_seconds";
/// Lanes that this relay owns (gauge).
pub const LANES_OWNED: &str = "postrider_outbox_lanes_owned";
/// Keys that wait behind an event that does not get through (gauge, claim mode `lanes`).
pub const BLOCKED_KEYS: &str = "postrider_outbox_blocked_keys";
/// Destinations of a sink that are down (gauge).
pub const DESTINATION_OPEN: &str = "postrider_destination_open";
/// How often a destination went down.
pub const DESTINATION_OPENED: &str = "postrider_destination_opened_total";
/// Events sent to a destination that is down, to see whether it is back.
pub const DESTINATION_PROBES: &str = "postrider_destination_probes_total";
/// Events claimed and put off because their destination is down.
pub const DESTINATION_HELD_BACK: &str = "postrider_destination_held_back_total";
/// Events at the same time that the slowest destination gets (gauge, 0: no limit).
pub const DESTINATION_WINDOW: &str = "postrider_destination_window";
/// Alerts sent, by channel.
pub const ALERTS: &str = "postrider_alerts_total";
/// Alerts that a channel did not take.
pub const ALERTS_FAILED: &str = "postrider_alerts_failed_total";
/// Whether an operator paused the outbox or its sink (gauge, 0 or 1).
pub const PAUSED: &str = "postrider_outbox_paused";
/// Dead letters sent again by rule.
pub const AUTO_RETRIED: &str = "postrider_outbox_auto_retried_total";
/// Whether this relay holds its lease (gauge, 0 or 1).
pub const LEASE_HELD: &str = "postrider_relay_lease_held";

/// Shows the counters of an outbox from the start: an alert rule cannot see a counter that appears
/// with its first event.
pub(crate) fn start(outbox: &str) {
    for name in [
        CLAIMED,
        PROCESSED,
        FAILED,
        DEFERRED,
        INTEGRITY_FAILURE,
        STALLED_RECOVERED,
        BACKUP,
        CRITICAL,
        FENCED,
        AUTO_RETRIED,
    ] {
        metrics::counter!(name, "outbox" => outbox.to_owned()).absolute(0);
    }
    metrics::gauge!(PAUSED, "outbox" => outbox.to_owned()).set(0.0);
}

/// The same for what is counted per sink.
pub(crate) fn start_sink(outbox: &str, sink: &str) {
    let labels = [("outbox", outbox.to_owned()), ("sink", sink.to_owned())];
    for name in [DESTINATION_OPENED, DESTINATION_PROBES, DESTINATION_HELD_BACK] {
        metrics::counter!(name, &labels).absolute(0);
    }
    for name in [DESTINATION_OPEN, DESTINATION_WINDOW] {
        metrics::gauge!(name, &labels).set(0.0);
    }
}

/// Describes all metrics to the recorder that is installed.
pub fn describe() {
    describe_gauge!(PENDING, "Events that are PENDING, PROCESSING or FAILED, from the books");
    describe_gauge!(OLDEST_AGE, "Age of the oldest live event in seconds");
    describe_gauge!(DLQ_UNRESOLVED, "Dead letters that nobody resolved");
    describe_counter!(CLAIMED, "Events claimed");
    describe_counter!(PROCESSED, "Events delivered and settled");
    describe_counter!(FAILED, "Attempts spent without delivery");
    describe_counter!(DEFERRED, "Events given back without spending an attempt");
    describe_counter!(DLQ, "Events moved to the dead letters");
    describe_counter!(INTEGRITY_FAILURE, "Events whose content does not fit their hash");
    describe_counter!(STALLED_RECOVERED, "Events recovered from relays that died");
    describe_counter!(BACKUP, "Dead letters written to the backup file");
    describe_counter!(CRITICAL, "Dead letters that neither table nor file could take");
    describe_counter!(FENCED, "Settled rows that were not this relay's any more");
    describe_histogram!(CLAIM_SECONDS, "Duration of a claim in seconds");
    describe_histogram!(DELIVER_SECONDS, "Duration of a delivery call in seconds");
    describe_histogram!(SETTLE_SECONDS, "Duration of a settle in seconds");
    describe_gauge!(LANES_OWNED, "Lanes that this relay owns");
    describe_gauge!(BLOCKED_KEYS, "Keys that wait behind an event that does not get through");
    describe_gauge!(DESTINATION_OPEN, "Destinations that are down");
    describe_counter!(DESTINATION_OPENED, "How often a destination went down");
    describe_counter!(DESTINATION_PROBES, "Events sent to a destination that is down");
    describe_counter!(DESTINATION_HELD_BACK, "Events put off because their destination is down");
    describe_gauge!(DESTINATION_WINDOW, "Events at once for the slowest destination; 0: no limit");
    describe_counter!(ALERTS, "Alerts sent");
    describe_counter!(ALERTS_FAILED, "Alerts that a channel did not take");
    describe_gauge!(PAUSED, "Whether an operator paused the outbox or its sink");
    describe_counter!(AUTO_RETRIED, "Dead letters sent again by rule");
    describe_gauge!(LEASE_HELD, "Whether this relay holds its lease");
}
