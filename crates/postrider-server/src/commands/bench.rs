//! `postrider bench` and `postrider chaos`: the configured store, and the API that they measure.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use metrics_exporter_prometheus::PrometheusBuilder;
use postrider_bench::{ApiParts, BenchCommand, ChaosCommand};
use postrider_command::Failure;
use postrider_relay::Waker;
use tokio_util::sync::CancellationToken;

use crate::commands::Context;
use crate::config::{ApiSection, ServerSection};
use crate::http;

pub(crate) async fn bench(context: &Context, command: BenchCommand) -> Result<(), Failure> {
    let store = context.load()?.store;
    postrider_bench::bench(store.url.expose(), store.connections_max, serve_api, command).await
}

pub(crate) async fn chaos(context: &Context, command: ChaosCommand) -> Result<(), Failure> {
    let store = context.load()?.store;
    postrider_bench::chaos(store.url.expose(), store.connections_max, command).await
}

/// Serves API and dashboard without a relay, and without the limit on requests per second.
fn serve_api(parts: ApiParts) -> Result<BoxFuture<'static, ()>, Failure> {
    let api = ApiSection { requests_per_s: u32::MAX / 4, ..ApiSection::default() };
    let server = ServerSection::default();
    let served = http::Served {
        outbox: parts.outbox,
        preset: "broker",
        sink: "bench".to_owned(),
        branches: Vec::new(),
        archives: true,
        rate: None,
    };
    let state = http::ServerState::new(http::Parts {
        store: parts.store,
        appender: parts.appender,
        outboxes: vec![served],
        gateways: parts.gateways,
        waker: Waker::default(),
        metrics: PrometheusBuilder::new().build_recorder().handle(),
        access: http::access::Access::new(&server, &api)?,
        alerts: Arc::default(),
        destinations: Arc::default(),
        heartbeat_fails: Arc::default(),
        feed: http::Feed::new(parts.feed_every, api.stream_clients_max),
        reconciler: http::Reconciler::default(),
        readiness: http::Readiness::default(),
        connections_per_address_max: server.connections_per_address_max,
        body_bytes_max: server.body_bytes_max,
        write_timeout: server.write_timeout.0,
        import_bytes_max: api.import_bytes_max,
        request_timeout: api.request_timeout.0,
        list_budget: api.list_budget.0,
        inbox_retention: postrider::INBOX_RETENTION,
        stop: CancellationToken::new(),
    });
    Ok(http::serve(parts.listener, state, parts.stop).map(drop).boxed())
}
