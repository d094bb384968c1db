//! The recorder of metrics.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use postrider_relay::telemetry;

use crate::Failure;

/// Interval at which the recorder sorts new samples of histograms into their buckets. Until then it
/// keeps every sample, and without scrapes it would keep them for ever.
const METRICS_UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Installs the recorder behind `/metrics`.
pub fn install_metrics() -> Result<PrometheusHandle, Failure> {
    let failed = |error| Failure::Usage(format!("metrics cannot be set up: {error}"));
    let mut builder = PrometheusBuilder::new();
    for (name, buckets) in telemetry::HISTOGRAMS {
        let matcher = Matcher::Full(name.to_owned());
        builder = builder.set_buckets_for_metric(matcher, buckets).map_err(failed)?;
    }
    let recorder = builder.install_recorder().map_err(failed)?;
    telemetry::describe();
    let handle = recorder.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(METRICS_UPKEEP_EVERY).await;
            handle.run_upkeep();
        }
    });
    Ok(recorder)
}
