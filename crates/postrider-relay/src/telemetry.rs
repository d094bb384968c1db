//! Names and labels of all metrics, in one place.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Events that are PENDING, PROCESSING or FAILED (gauge, from the ledger).
pub const PENDING: &str = "postrider_outbox_pending";
/// Events that failed and wait for another attempt (gauge, a lower bound).
pub const FAILED_ROWS: &str = "postrider_outbox_failed_rows";
/// Age of the oldest live event (gauge, seconds).
pub const OLDEST_AGE: &str = "postrider_outbox_oldest_age_seconds";
/// Unresolved dead letters (gauge).
pub const DLQ_UNRESOLVED: &str = "postrider_outbox_dlq_unresolved";
/// Events claimed.
pub const CLAIMED: &str = "postrider_outbox_claimed_total";
/// Events delivered and settled.
pub const PROCESSED: &str = "postrider_outbox_processed_total";
/// Attempts spent without delivery, including an event's last one.
pub const FAILED: &str = "postrider_outbox_failed_total";
/// Events released without spending an attempt.
pub const DEFERRED: &str = "postrider_outbox_deferred_total";
/// Events moved to the dead letters (first stage of the safety net). Exported from 0 on, for alert
/// rules: a counter by type first appears with its first event, and `increase` does not see that
/// one.
pub const DEAD_LETTERS: &str = "postrider_outbox_dead_letters_total";
/// Events moved to the dead letters (first stage of the safety net), by event type and reason.
pub const DLQ: &str = "postrider_outbox_dlq_total";
/// Events whose content does not match their hash.
pub const INTEGRITY_FAILURE: &str = "postrider_outbox_integrity_failure_total";
/// Events recovered from relays that died.
pub const STALLED_RECOVERED: &str = "postrider_outbox_stalled_recovered_total";
/// Dead letters written to the backup file (second stage).
pub const BACKUP: &str = "postrider_outbox_backup_total";
/// Dead letters that could be written neither to the table nor to the file (third stage).
pub const CRITICAL: &str = "postrider_outbox_critical_failure_total";
/// Settled rows that no longer belonged to this relay.
pub const FENCED: &str = "postrider_outbox_fenced_total";
/// Share of this relay's attempts in the last 5 minutes that are retries (gauge, 0 to 1).
pub const RETRY_RATE: &str = "postrider_outbox_retry_rate";
/// Duration of a claim (seconds).
pub const CLAIM_SECONDS: &str = "postrider_claim_seconds";
/// Duration of a delivery call (seconds).
pub const DELIVER_SECONDS: &str = "postrider_deliver_seconds";
/// Duration of a settle (seconds).
pub const SETTLE_SECONDS: &str = "postrider_settle_seconds";
/// Time from the insert of an event until it is settled as delivered (seconds).
pub const END_TO_END_SECONDS: &str = "postrider_end_to_end_seconds";
/// Lanes that this relay owns (gauge).
pub const LANES_OWNED: &str = "postrider_outbox_lanes_owned";
/// Keys that wait behind an event that is not delivered (gauge, claim mode `lanes`).
pub const BLOCKED_KEYS: &str = "postrider_outbox_blocked_keys";
/// Share of this relay's calls in the last 5 minutes that found the destination up (gauge, 0 to 1).
pub const DESTINATION_AVAILABILITY: &str = "postrider_destination_availability";
/// Destinations of a sink that are down (gauge).
pub const DESTINATION_OPEN: &str = "postrider_destination_open";
/// Number of times that a destination went down.
pub const DESTINATION_OPENED: &str = "postrider_destination_opened_total";
/// Events sent to a destination that is down, to find out whether it is back.
pub const DESTINATION_PROBES: &str = "postrider_destination_probes_total";
/// Events claimed and deferred because their destination is down.
pub const DESTINATION_HELD_BACK: &str = "postrider_destination_held_back_total";
/// Events that the slowest destination may have in flight (gauge, 0: no limit).
pub const DESTINATION_WINDOW: &str = "postrider_destination_window";
/// Messages that a channel accepted.
pub const ALERTS: &str = "postrider_alerts_total";
/// Failed attempts to send a message.
pub const ALERTS_FAILED: &str = "postrider_alerts_failed_total";
/// Whether an operator paused the outbox or its sink (gauge, 0 or 1).
pub const PAUSED: &str = "postrider_outbox_paused";
/// Dead letters retried by rule.
pub const AUTO_RETRIED: &str = "postrider_outbox_auto_retried_total";
/// Messages dropped: too many at once, refused, or not sent for a day.
pub const ALERTS_DROPPED: &str = "postrider_alerts_dropped_total";
/// Messages that wait for their channel (gauge).
pub const ALERTS_WAITING: &str = "postrider_alerts_waiting";
/// Calls that a gateway answered from its cache.
pub const GATEWAY_HITS: &str = "postrider_gateway_hits_total";
/// Calls whose answer was not in the cache, or not fresh.
pub const GATEWAY_MISSES: &str = "postrider_gateway_misses_total";
/// Callers' calls that a gateway made to its upstream.
pub const GATEWAY_CALLS: &str = "postrider_gateway_calls_total";
/// Calls that were saved, each once while it is open.
pub const GATEWAY_SAVED: &str = "postrider_gateway_saved_total";
/// Calls that had already been saved.
pub const GATEWAY_REPEATS: &str = "postrider_gateway_repeats_total";
/// Calls that could not be saved.
pub const GATEWAY_UNSAVED: &str = "postrider_gateway_unsaved_total";
/// Callers that got 503 because the upstream is down.
pub const GATEWAY_UNAVAILABLE: &str = "postrider_gateway_unavailable_total";
/// Callers that got a stale answer because the upstream is down.
pub const GATEWAY_STALE: &str = "postrider_gateway_stale_total";
/// Saved calls that the relay repeated.
pub const GATEWAY_REPLAYS: &str = "postrider_gateway_replays_total";
/// Saved calls that did not have to be repeated, because they had been answered by then.
pub const GATEWAY_NEEDLESS: &str = "postrider_gateway_needless_total";
/// Failures of a gateway's cache.
pub const GATEWAY_CACHE_ERRORS: &str = "postrider_gateway_cache_errors_total";
/// Whether this relay holds its lease (gauge, 0 or 1).
pub const LEASE_HELD: &str = "postrider_relay_lease_held";

/// Fields that wait in the buffer (gauge).
pub const BUFFER_FIELDS: &str = "postrider_buffer_fields";
/// Entries of batches that were moved and are not finished (gauge).
pub const BUFFER_WAITING: &str = "postrider_buffer_waiting";
/// Entries moved out of the buffer.
pub const BUFFER_MOVED: &str = "postrider_buffer_moved_total";
/// Entries saved.
pub const BUFFER_APPLIED: &str = "postrider_buffer_applied_total";
/// Entries of batches that had already been saved.
pub const BUFFER_IGNORED: &str = "postrider_buffer_ignored_total";
/// Entries returned to the buffer, or passed on to other batches.
pub const BUFFER_GIVEN_BACK: &str = "postrider_buffer_given_back_total";
/// Batches taken over from workers that are gone.
pub const BUFFER_RECOVERED: &str = "postrider_buffer_recovered_total";
/// Batches written to the backup file.
pub const BUFFER_DEAD_LETTERS: &str = "postrider_buffer_dead_letters_total";
/// Batches that could not be written to the backup file, or whose key was gone from Redis.
pub const BUFFER_CRITICAL: &str = "postrider_buffer_critical_failure_total";
/// Time from moving a batch until it is finished (seconds).
pub const BUFFER_FLUSH_SECONDS: &str = "postrider_buffer_flush_seconds";

/// Messages that a NATS stream had already: repeats whose first answer was lost.
pub const NATS_REPEATS: &str = "postrider_nats_repeats_total";
/// Spans that the collector accepted.
pub const SPANS: &str = "postrider_spans_total";
/// Spans that were dropped: too many at once, or the collector was unreachable.
pub const SPANS_DROPPED: &str = "postrider_spans_dropped_total";

/// The labels. The number of values is bounded: events or callers cannot create more without limit.
pub mod label {
    /// Name of the outbox.
    pub const OUTBOX: &str = "outbox";
    /// Name of the sink.
    pub const SINK: &str = "sink";
    /// Event type; `other` beyond the first 100 of a process.
    pub const EVENT_TYPE: &str = "event_type";
    /// Why an event is a dead letter.
    pub const REASON: &str = "reason";
    /// Name of the buffer.
    pub const BUFFER: &str = "buffer";
    /// Name of the gateway.
    pub const GATEWAY: &str = "gateway";
    /// Name of the channel for alerts.
    pub const CHANNEL: &str = "channel";
}

/// Upper bounds of the buckets of a duration, in seconds: from half a millisecond to a minute.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// Upper bounds for the time from insert to delivery, which can be hours after an outage: from 5 ms
/// to a day.
const END_TO_END_BUCKETS: [f64; 16] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1_800.0, 21_600.0,
    86_400.0,
];

/// The histograms with their buckets, for the recorder.
pub const HISTOGRAMS: [(&str, &[f64]); 5] = [
    (CLAIM_SECONDS, &DURATION_BUCKETS),
    (DELIVER_SECONDS, &DURATION_BUCKETS),
    (SETTLE_SECONDS, &DURATION_BUCKETS),
    (END_TO_END_SECONDS, &END_TO_END_BUCKETS),
    (BUFFER_FLUSH_SECONDS, &DURATION_BUCKETS),
];

/// Event types that have a label of their own.
const EVENT_TYPES_MAX: usize = 100;

/// Returns the label of an event type. Programs may create any number of types, but a metric must
/// not grow with them.
pub(crate) fn event_type(name: &str) -> String {
    static KNOWN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    bounded(known.get_or_insert_default(), name, EVENT_TYPES_MAX)
}

fn bounded(known: &mut HashSet<String>, name: &str, max: usize) -> String {
    if !known.contains(name) {
        if known.len() >= max {
            return "other".to_owned();
        }
        known.insert(name.to_owned());
    }
    name.to_owned()
}

/// Exports the counters of an outbox from the start: an alert rule cannot see a counter that
/// appears with its first event.
pub(crate) fn start(outbox: &str) {
    for name in [
        CLAIMED,
        PROCESSED,
        FAILED,
        DEFERRED,
        DEAD_LETTERS,
        INTEGRITY_FAILURE,
        STALLED_RECOVERED,
        BACKUP,
        CRITICAL,
        FENCED,
        AUTO_RETRIED,
    ] {
        metrics::counter!(name, label::OUTBOX => outbox.to_owned()).absolute(0);
    }
    for name in [RETRY_RATE, PAUSED] {
        metrics::gauge!(name, label::OUTBOX => outbox.to_owned()).set(0.0);
    }
}

/// Sets the gauges of the tables to NaN on a relay that no longer watches them. NaN does not
/// override the value of the relay that does.
pub(crate) fn forget_store(outbox: &str) {
    for name in [PENDING, FAILED_ROWS, OLDEST_AGE, DLQ_UNRESOLVED] {
        metrics::gauge!(name, label::OUTBOX => outbox.to_owned()).set(f64::NAN);
    }
}

/// The same as [`start`], for what is counted per sink.
pub(crate) fn start_sink(outbox: &str, sink: &str) {
    let labels = [(label::OUTBOX, outbox.to_owned()), (label::SINK, sink.to_owned())];
    for name in [DESTINATION_OPENED, DESTINATION_PROBES, DESTINATION_HELD_BACK] {
        metrics::counter!(name, &labels).absolute(0);
    }
    for name in [DESTINATION_OPEN, DESTINATION_WINDOW] {
        metrics::gauge!(name, &labels).set(0.0);
    }
    metrics::gauge!(DESTINATION_AVAILABILITY, &labels).set(1.0);
}

/// The same as [`start`], for what is counted per channel.
pub(crate) fn start_channel(channel: &str) {
    for name in [ALERTS, ALERTS_FAILED, ALERTS_DROPPED] {
        metrics::counter!(name, label::CHANNEL => channel.to_owned()).absolute(0);
    }
    metrics::gauge!(ALERTS_WAITING, label::CHANNEL => channel.to_owned()).set(0.0);
}

/// The same as [`start`], for what is counted per NATS sink.
#[cfg(feature = "nats")]
pub(crate) fn start_nats(sink: &str) {
    metrics::counter!(NATS_REPEATS, label::SINK => sink.to_owned()).absolute(0);
}

/// The same as [`start`], for what is counted per buffer.
#[cfg(feature = "buffer")]
pub(crate) fn start_buffer(buffer: &str) {
    for name in [
        BUFFER_MOVED,
        BUFFER_APPLIED,
        BUFFER_IGNORED,
        BUFFER_GIVEN_BACK,
        BUFFER_RECOVERED,
        BUFFER_DEAD_LETTERS,
        BUFFER_CRITICAL,
    ] {
        metrics::counter!(name, label::BUFFER => buffer.to_owned()).absolute(0);
    }
}

/// The same as [`start`], for what is counted per gateway.
#[cfg(feature = "gateway")]
pub(crate) fn start_gateway(gateway: &str) {
    for name in [
        GATEWAY_HITS,
        GATEWAY_MISSES,
        GATEWAY_CALLS,
        GATEWAY_SAVED,
        GATEWAY_REPEATS,
        GATEWAY_UNSAVED,
        GATEWAY_UNAVAILABLE,
        GATEWAY_STALE,
        GATEWAY_REPLAYS,
        GATEWAY_NEEDLESS,
        GATEWAY_CACHE_ERRORS,
    ] {
        metrics::counter!(name, label::GATEWAY => gateway.to_owned()).absolute(0);
    }
}

/// Describes all metrics to the installed recorder.
pub fn describe() {
    describe_gauge!(PENDING, "Events that are PENDING, PROCESSING or FAILED, from the ledger");
    describe_gauge!(FAILED_ROWS, "Events that failed and wait for another attempt, at least");
    describe_gauge!(OLDEST_AGE, "Age of the oldest live event in seconds");
    describe_gauge!(DLQ_UNRESOLVED, "Unresolved dead letters");
    describe_counter!(CLAIMED, "Events claimed");
    describe_counter!(PROCESSED, "Events delivered and settled");
    describe_counter!(FAILED, "Attempts spent without delivery");
    describe_counter!(DEFERRED, "Events given back without spending an attempt");
    describe_counter!(DEAD_LETTERS, "Events moved to the dead letters");
    describe_counter!(DLQ, "Events moved to the dead letters, by event type and reason");
    describe_counter!(INTEGRITY_FAILURE, "Events whose content does not fit their hash");
    describe_counter!(STALLED_RECOVERED, "Events recovered from relays that died");
    describe_counter!(BACKUP, "Dead letters written to the backup file");
    describe_counter!(CRITICAL, "Dead letters that neither table nor file could take");
    describe_counter!(FENCED, "Settled rows that were not this relay's any more");
    describe_gauge!(RETRY_RATE, "Share of the attempts of 5 minutes that are retries");
    describe_histogram!(CLAIM_SECONDS, "Duration of a claim in seconds");
    describe_histogram!(DELIVER_SECONDS, "Duration of a delivery call in seconds");
    describe_histogram!(SETTLE_SECONDS, "Duration of a settle in seconds");
    describe_histogram!(END_TO_END_SECONDS, "From insert to settled delivery in seconds");
    describe_gauge!(LANES_OWNED, "Lanes that this relay owns");
    describe_gauge!(BLOCKED_KEYS, "Keys that wait behind an event that does not get through");
    describe_gauge!(DESTINATION_AVAILABILITY, "Share of the calls of 5 minutes that found it up");
    describe_gauge!(DESTINATION_OPEN, "Destinations that are down");
    describe_counter!(DESTINATION_OPENED, "How often a destination went down");
    describe_counter!(DESTINATION_PROBES, "Events sent to a destination that is down");
    describe_counter!(DESTINATION_HELD_BACK, "Events put off because their destination is down");
    describe_gauge!(DESTINATION_WINDOW, "Events at once for the slowest destination; 0: no limit");
    describe_counter!(ALERTS, "Messages that a channel took");
    describe_counter!(ALERTS_FAILED, "Tries of a message that failed");
    describe_counter!(ALERTS_DROPPED, "Messages given up");
    describe_gauge!(ALERTS_WAITING, "Messages that wait for their channel");
    describe_counter!(NATS_REPEATS, "Messages that their stream had already");
    describe_counter!(SPANS, "Spans that the collector took");
    describe_counter!(SPANS_DROPPED, "Spans that were dropped");
    describe_gauge!(BUFFER_FIELDS, "Fields that wait in the buffer");
    describe_gauge!(BUFFER_WAITING, "Entries of batches that are moved and not ended");
    describe_counter!(BUFFER_MOVED, "Entries moved out of the buffer");
    describe_counter!(BUFFER_APPLIED, "Entries saved");
    describe_counter!(BUFFER_IGNORED, "Entries of batches that were found to be saved before");
    describe_counter!(BUFFER_GIVEN_BACK, "Entries given back, or passed on to other batches");
    describe_counter!(BUFFER_RECOVERED, "Batches taken over from workers that are gone");
    describe_counter!(BUFFER_DEAD_LETTERS, "Batches written to the backup file");
    describe_counter!(BUFFER_CRITICAL, "Batches that the file could not take, or that are lost");
    describe_histogram!(BUFFER_FLUSH_SECONDS, "From moving a batch until it is ended in seconds");
    describe_gauge!(PAUSED, "Whether an operator paused the outbox or its sink");
    describe_counter!(AUTO_RETRIED, "Dead letters sent again by rule");
    describe_counter!(GATEWAY_HITS, "Calls answered from the cache");
    describe_counter!(GATEWAY_MISSES, "Calls whose answer was not in the cache, or not fresh");
    describe_counter!(GATEWAY_CALLS, "Calls of callers made to the upstream");
    describe_counter!(GATEWAY_SAVED, "Calls that were saved");
    describe_counter!(GATEWAY_REPEATS, "Calls that had been saved before");
    describe_counter!(GATEWAY_UNSAVED, "Calls that could not be saved");
    describe_counter!(GATEWAY_UNAVAILABLE, "Callers that got 503");
    describe_counter!(GATEWAY_STALE, "Callers that got an old answer");
    describe_counter!(GATEWAY_REPLAYS, "Saved calls that were repeated");
    describe_counter!(GATEWAY_NEEDLESS, "Saved calls that needed no repeat");
    describe_counter!(GATEWAY_CACHE_ERRORS, "Failures of the cache");
    describe_gauge!(LEASE_HELD, "Whether this relay holds its lease");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_beyond_the_limit_share_a_label() {
        let mut known = HashSet::new();
        let label = |known: &mut HashSet<String>, name: &str| bounded(known, name, 2);
        assert_eq!(label(&mut known, "A"), "A");
        assert_eq!(label(&mut known, "B"), "B");
        assert_eq!(label(&mut known, "C"), "other");
        assert_eq!(label(&mut known, "A"), "A", "known ones keep their own");
    }
}
