//! A receiver of its own by HTTP, behind a network that can be cut.

use std::sync::Arc;

use async_trait::async_trait;
use postrider::Event;
use postrider_relay::Sink;
use postrider_relay::sinks::{HttpSettings, HttpSink};

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::{Answer, FaultProxy, HttpTarget, Received};

/// A body that the receiver answers with 422.
const REFUSED: &str = "refuse this";

/// An HTTP server in the test's own process. It goes down with the network in front of it.
pub struct HttpDestination {
    target: HttpTarget,
    network: FaultProxy,
}

impl HttpDestination {
    async fn create() -> Self {
        let target = HttpTarget::start().await;
        target.answer_by(|request| match request.body.as_str() {
            REFUSED => Answer::status(422),
            _ => Answer::ok(),
        });
        let upstream = target.url().replace("http://", "");
        Self { network: FaultProxy::start(&upstream).await, target }
    }
}

#[async_trait(?Send)]
impl Destination for HttpDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: 4 * 1024 * 1024, recognises_repeats: false };

    async fn shared(_test: &str) -> Option<Self> {
        Some(Self::create().await)
    }

    async fn private(_test: &str) -> Option<Self> {
        Some(Self::create().await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        let url = format!("http://{}/events", self.network.address());
        Arc::new(HttpSink::new(HttpSettings::new(&settings_name(), &url)).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { payload: REFUSED.to_owned(), ..event }
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let taken = |request: &Received| request.body != REFUSED;
        self.target.received().into_iter().filter(taken).map(arrived).collect()
    }

    async fn stop(&self) {
        self.network.cut();
    }

    async fn kill(&self) {
        self.network.blackhole();
        self.network.cut();
    }

    async fn start(&self) {
        self.network.pass();
    }

    async fn remove(self) {}
}

/// The sink writes what a header cannot carry percent-encoded.
fn arrived(request: Received) -> Arrived {
    let decoded = |(name, value): (&String, &String)| (name.clone(), percent_decoded(value));
    Arrived {
        event_id: request.header("postrider-event-id").to_owned(),
        headers: request.headers.iter().map(decoded).collect(),
        payload: request.body,
    }
}

fn percent_decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (code, rest) = piece.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).unwrap());
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).unwrap()
}
