//! Samples that are taken during a run.

use std::time::Instant;

use metrics_exporter_prometheus::PrometheusHandle;
use postrider_relay::telemetry;

/// One sample of everything.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Seconds since the start of the outage.
    pub(super) at_s: f64,
    pub(super) backlog: i64,
    /// Different calls that the API has accepted.
    pub(super) delivered: u64,
    /// Whether the API's breaker is open.
    pub(super) open: bool,
}

pub(super) struct Samples {
    started: Instant,
    metrics: PrometheusHandle,
    pub(super) taken: Vec<Sample>,
}

impl Samples {
    pub(super) fn start(metrics: PrometheusHandle) -> Self {
        Self { started: Instant::now(), metrics, taken: Vec::new() }
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(super) fn take(&mut self, backlog: i64, delivered: u64) {
        let open = self.metric(telemetry::DESTINATION_OPEN) > 0.0;
        self.taken.push(Sample { at_s: self.elapsed_s(), backlog, delivered, open });
    }

    /// Returns the sum of a metric of this process over its labels.
    pub(super) fn metric(&self, name: &str) -> f64 {
        sum(&self.metrics.render(), name)
    }
}

fn sum(exposition: &str, name: &str) -> f64 {
    exposition
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 7\nb 1\n";
        assert_eq!((sum(text, "a"), sum(text, "b"), sum(text, "c")), (5.0, 1.0, 0.0));
    }
}
