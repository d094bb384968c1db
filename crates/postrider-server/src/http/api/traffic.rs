//! Current traffic, as reported by the relays with each heartbeat.

use postrider_store::{RelayPulse, Traffic};
use serde::Serialize;
use utoipa::ToSchema;

/// What is in flight, and what the last minute was like.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct TrafficBody {
    /// Events that were sent and not answered yet.
    pub(crate) in_flight: u64,
    /// Attempts that failed, per second of the last minute.
    pub(crate) failed_per_s: f64,
    /// Events delivered in the last minute, which the latencies are of.
    pub(crate) delivered_in_minute: u64,
    /// From insert to delivery: half of the events took no longer. Absent: nothing was delivered.
    pub(crate) latency_p50_ms: Option<f64>,
    /// The same for 99 of 100.
    pub(crate) latency_p99_ms: Option<f64>,
}

impl From<&Traffic> for TrafficBody {
    fn from(traffic: &Traffic) -> Self {
        let ms = |share| {
            let age = traffic.ages.quantile(share)?;
            Some((age.as_secs_f64() * 10_000.0).round() / 10.0)
        };
        Self {
            in_flight: traffic.in_flight,
            failed_per_s: (traffic.failed_in_minute as f64 / 60.0 * 100.0).round() / 100.0,
            delivered_in_minute: traffic.ages.count(),
            latency_p50_ms: ms(0.5),
            latency_p99_ms: ms(0.99),
        }
    }
}

/// Returns the combined traffic of an outbox over all live relays.
pub(crate) fn traffic(relays: &[RelayPulse], outbox: &str) -> TrafficBody {
    let live = relays.iter().filter(|relay| !relay.fenced);
    let serving = live.flat_map(|relay| &relay.serving).filter(|serving| serving.outbox == outbox);
    let mut all = Traffic::default();
    serving.for_each(|serving| all.add(&serving.traffic));
    TrafficBody::from(&all)
}
