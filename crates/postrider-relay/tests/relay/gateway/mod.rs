//! The gateway: what callers get, what is saved, and what the relay repeats.

mod answers;
mod broken;
mod cache;
mod changes;
mod faults;
mod hostile;
mod invalidation;
mod outages;
mod replays;
mod standards;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use postrider::Outbox;
use postrider_relay::{
    OutboxConfig, Preset, Relay,
    gateway::{Call, Gateway, GatewaySettings, GatewaySink, Reply, Upstream},
};
use postrider_store::{Appender, Dedupe};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    http::{Receiver, Reply as Says, Request},
    relay::{RunningRelay, quick_config, quick_preset},
};

type Script = Box<dyn Fn(&Request) -> Says + Send + Sync>;

/// An upstream that answers as the test wants, and a gateway in front of it.
struct Scene {
    db: TestDb,
    outbox: Outbox,
    server: Receiver,
    script: Arc<Mutex<Script>>,
    upstream: Arc<Upstream>,
    gateway: Gateway,
    folder: TempFolder,
}

/// Returns a preset with short times, in which an upstream that is down stays down until the test
/// says otherwise.
fn preset() -> Preset {
    Preset { max_retries: 3, outage_max: Duration::from_secs(3600), ..quick_preset() }
}

impl Scene {
    async fn open(db: TestDb) -> Self {
        Self::with(db, |settings| settings).await
    }

    async fn with(db: TestDb, change: impl FnOnce(GatewaySettings) -> GatewaySettings) -> Self {
        let url = db.url.clone();
        Self::saving_to(db, &url, change).await
    }

    /// Creates a scene in which the upstream is probed as this preset says while it is down.
    async fn probed(
        db: TestDb,
        preset: &Preset,
        change: impl FnOnce(GatewaySettings) -> GatewaySettings,
    ) -> Self {
        let url = db.url.clone();
        Self::build(db, &url, preset, change).await
    }

    /// Creates a scene in which calls are saved through another URL of the same database.
    async fn saving_to(
        db: TestDb,
        url: &str,
        change: impl FnOnce(GatewaySettings) -> GatewaySettings,
    ) -> Self {
        Self::build(db, url, &preset(), change).await
    }

    async fn build(
        db: TestDb,
        url: &str,
        preset: &Preset,
        change: impl FnOnce(GatewaySettings) -> GatewaySettings,
    ) -> Self {
        let outbox = db.add_outbox(Dedupe::Open).await;
        let db = db.with_outbox(outbox.clone());
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(hello)));
        let asked = Arc::clone(&script);
        let server = Receiver::start(move |request| asked.lock().unwrap()(request)).await;
        let settings = GatewaySettings {
            headers: vec![("x-api-key".to_owned(), "of the settings".to_owned())],
            replay_after: Duration::ZERO,
            ..GatewaySettings::new("nexon", server.url("/v1"))
        };
        let upstream = Arc::new(Upstream::new(change(settings), preset).unwrap());
        let appender = Appender::connect(url, 4).await.unwrap();
        let gateway = Gateway::new(Arc::clone(&upstream), outbox.clone(), appender);
        Self { db, outbox, server, script, upstream, gateway, folder: TempFolder::new() }
    }

    /// Sets how the upstream answers from now on.
    fn says(&self, script: impl Fn(&Request) -> Says + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    fn relay(&self) -> RunningRelay {
        RunningRelay::start(self.unstarted_relay())
    }

    fn unstarted_relay(&self) -> Relay {
        self.relay_of(preset())
    }

    fn relay_of(&self, preset: Preset) -> Relay {
        let sink = Arc::new(GatewaySink::new(Arc::clone(&self.upstream)));
        let config = OutboxConfig {
            dedupe: Dedupe::Open,
            ..OutboxConfig::new(self.outbox.clone(), preset, sink)
        };
        Relay::new(Arc::clone(&self.db.store), quick_config(&self.folder)).outbox(config)
    }

    async fn get(&self, target: &str) -> Response<Bytes> {
        self.gateway.fetch(Call::get(target).unwrap()).await.into_response()
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Response<Bytes> {
        let header = |(name, value): &(&str, &str)| {
            (http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap())
        };
        let headers: HeaderMap = headers.iter().map(header).collect();
        let reply: Reply =
            self.gateway.answer(method, target, &headers, Bytes::from_static(b"{}")).await;
        reply.into_response()
    }

    /// Returns the targets of the requests that the upstream received.
    fn asked(&self) -> Vec<String> {
        self.server.received().requests.iter().map(|request| request.target.clone()).collect()
    }

    /// Opens the breaker with five failed calls.
    async fn until_it_counts_as_down(&self) {
        self.says(|_| Says::Status(503));
        for number in 0..5 {
            assert_eq!(self.get(&format!("/down/{number}")).await.status(), 503);
        }
        let answer = self.get("/down/not-asked").await;
        assert!(text(&answer).contains("it counts as down"), "{}", text(&answer));
    }

    async fn drained(&self) {
        eventually("every saved call is repeated", async || {
            (self.db.count("").await == 0).then_some(())
        })
        .await;
    }
}

fn hello(request: &Request) -> Says {
    let headers = vec![("content-type", "text/plain".to_owned())];
    Says::Full(200, headers, format!("hello {}", request.target))
}

fn text(response: &Response<Bytes>) -> &str {
    std::str::from_utf8(response.body()).unwrap()
}

fn header<'a>(response: &'a Response<Bytes>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn problem(response: &Response<Bytes>) -> serde_json::Value {
    assert_eq!(header(response, "content-type"), "application/problem+json");
    serde_json::from_slice(response.body()).unwrap()
}
