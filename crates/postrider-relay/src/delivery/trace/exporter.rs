//! Sends spans to a collector: OTLP over HTTP, in its JSON form.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Span, Tracer};
use crate::telemetry;

/// Spans that wait to be sent. Further ones are dropped: an unreachable collector must not cost
/// memory.
const WAITING_MAX: usize = 4_096;
/// Maximum number of spans per request.
const BATCH_MAX: usize = 512;
/// Interval between requests while there are spans to send.
const SEND_EVERY: Duration = Duration::from_secs(1);
/// Attempts per request.
const TRIES_MAX: u32 = 3;
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Enum values of OTLP.
const KIND_PRODUCER: u8 = 4;
const STATUS_ERROR: u8 = 2;

/// Where spans are sent.
#[derive(Clone)]
pub struct TraceSettings {
    endpoint: String,
    headers: BTreeMap<String, String>,
    ratio: f64,
    client: reqwest::Client,
}

impl TraceSettings {
    /// Creates settings for the collector at this address, such as `http://localhost:4318`. Of
    /// events whose producer sent no trace, a share of `ratio` (0 to 1) begins one.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(
        endpoint: &str,
        headers: BTreeMap<String, String>,
        ratio: f64,
    ) -> Result<Self, String> {
        use reqwest::header::{HeaderName, HeaderValue};
        let url = url::Url::parse(endpoint).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(mut url) = url else {
            return Err("`otlp_endpoint` is not a URL like http://localhost:4318".to_owned());
        };
        if url.path().trim_end_matches('/').is_empty() {
            url.set_path("/v1/traces");
        }
        if !(0.0..=1.0).contains(&ratio) {
            return Err(format!("`trace_ratio` = {ratio}: allowed is 0 to 1"));
        }
        for (name, value) in &headers {
            if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
                return Err(format!("`otlp_headers`: `{name}` is not a header"));
            }
        }
        let client = crate::http::client(TIMEOUT)?;
        Ok(Self { endpoint: url.to_string(), headers, ratio, client })
    }
}

/// The receiving end of the queue.
pub(crate) struct Exporter {
    receiver: mpsc::Receiver<Span>,
    settings: TraceSettings,
    host: String,
}

/// Creates a tracer, and the exporter that sends its spans.
pub(crate) fn start(settings: TraceSettings, host: &str) -> (Tracer, Exporter) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    for name in [telemetry::SPANS, telemetry::SPANS_DROPPED] {
        metrics::counter!(name).absolute(0);
    }
    let tracer = Tracer { sender, ratio: settings.ratio };
    (tracer, Exporter { receiver, settings, host: host.to_owned() })
}

impl Exporter {
    /// Sends until stopped, then sends what is left, once.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let mut spans = Vec::new();
            let stopped = tokio::select! {
                () = stop.cancelled() => true,
                received = self.receiver.recv_many(&mut spans, BATCH_MAX) => received == 0,
            };
            if !stopped && spans.len() < BATCH_MAX {
                // Waits for further spans to share the request.
                stop.run_until_cancelled(tokio::time::sleep(SEND_EVERY)).await;
            }
            while spans.len() < BATCH_MAX
                && let Ok(span) = self.receiver.try_recv()
            {
                spans.push(span);
            }
            if !spans.is_empty() {
                self.send(&spans, &stop).await;
            }
            if stopped && self.receiver.is_empty() {
                return;
            }
        }
    }

    async fn send(&self, spans: &[Span], stop: &CancellationToken) {
        let body = request(spans, &self.host).to_string();
        let mut tries = 0;
        while let Err(error) = self.post(body.clone()).await {
            tries += 1;
            if tries == TRIES_MAX || stop.is_cancelled() {
                let (endpoint, count) = (&self.settings.endpoint, spans.len());
                metrics::counter!(telemetry::SPANS_DROPPED).increment(count as u64);
                tracing::warn!(endpoint, error, count, "spans dropped: the collector is away");
                return;
            }
            stop.run_until_cancelled(tokio::time::sleep(SEND_EVERY * tries)).await;
        }
        metrics::counter!(telemetry::SPANS).increment(spans.len() as u64);
    }

    async fn post(&self, body: String) -> Result<(), String> {
        let settings = &self.settings;
        let mut request = settings.client.post(&settings.endpoint);
        for (name, value) in &settings.headers {
            request = request.header(name, value);
        }
        let request = request.header("content-type", "application/json").body(body);
        let answer = request.send().await;
        let answer = answer.map_err(|error| crate::http::connection_error(&error))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("HTTP {status}")),
        }
    }
}

fn request(spans: &[Span], host: &str) -> Value {
    let resource = attributes(&[
        ("service.name", "postrider"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", host),
    ]);
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "postrider" }, "spans": spans }],
    }] })
}

fn span(span: &Span) -> Value {
    let own: Vec<(&str, &str)> =
        span.attributes.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut json = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.span),
        "name": span.name,
        "kind": KIND_PRODUCER,
        "startTimeUnixNano": nanos(span.started_at),
        "endTimeUnixNano": nanos(span.ended_at),
        "attributes": attributes(&own),
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(state) = &span.state {
        json["traceState"] = state.as_str().into();
    }
    if let Some(error) = &span.error {
        json["status"] = json!({ "code": STATUS_ERROR, "message": error });
    }
    json
}

/// Formats a time. In this form, numbers of 64 bits are strings.
fn nanos(at: SystemTime) -> String {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn attributes(pairs: &[(&str, &str)]) -> Vec<Value> {
    let one = |(key, value): &(&str, &str)| {
        // A number stays a number, so that it can be compared.
        match value.parse::<i64>() {
            Ok(number) if *key == "postrider.attempt" => {
                json!({ "key": key, "value": { "intValue": number.to_string() } })
            }
            _ => json!({ "key": key, "value": { "stringValue": value } }),
        }
    };
    pairs.iter().map(one).collect()
}
