//! Without the feature `http`, spans cannot be sent, and there are no settings for a collector.

use tokio_util::sync::CancellationToken;

use super::Tracer;

/// Where spans are sent.
#[derive(Clone)]
pub enum TraceSettings {}

pub(crate) enum Exporter {}

impl Exporter {
    #[expect(clippy::unused_async, reason = "as the one that sends")]
    pub(crate) async fn run(self, _: CancellationToken) {
        match self {}
    }
}

pub(crate) fn start(settings: TraceSettings, _: &str) -> (Tracer, Exporter) {
    match settings {}
}
