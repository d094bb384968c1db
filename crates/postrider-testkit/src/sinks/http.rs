//! An HTTP receiver for one test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use postrider_relay::{
    Sink,
    sinks::{HttpSettings, HttpSink},
};
use postrider_store::Event;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::{Arrived, Capabilities, Destination, settings_name};
use crate::{Answer, FaultProxy, HttpTarget, Received, eventually};

/// A body that the receiver answers with 422.
const REFUSED: &str = "refuse this";

/// Size of a body in bytes, above which the receiver answers 413.
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// An HTTP server in the test's own process, behind a network that can fail, with a listener in
/// front of it that can be closed.
pub struct HttpDestination {
    pub(super) target: HttpTarget,
    network: FaultProxy,
    door: SocketAddr,
    open: Mutex<CancellationToken>,
}

impl HttpDestination {
    async fn create() -> Self {
        let target = HttpTarget::start().await;
        target.answer_by(|request| match request.body.as_str() {
            REFUSED => Answer::status(422),
            body if body.len() > BODY_BYTES_MAX => Answer::status(413),
            _ => Answer::ok(),
        });
        let network = FaultProxy::start(&target.url().replace("http://", "")).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (door, open) = (listener.local_addr().unwrap(), CancellationToken::new());
        let destination = Self { target, network, door, open: Mutex::new(open) };
        destination.serve(listener);
        destination
    }

    /// Returns the URL that events are posted to.
    pub fn url(&self) -> String {
        format!("http://{}/events", self.door)
    }

    /// Makes the receiver ask for a pause, or accept everything.
    pub fn limit(&self, is_limited: bool) {
        self.target.answer_by(move |_| match is_limited {
            true => Answer::status(429).header("retry-after", "1"),
            false => Answer::ok(),
        });
    }

    fn serve(&self, listener: TcpListener) {
        let upstream = self.network.address();
        let open = self.open.lock().unwrap().clone();
        tokio::spawn(open.clone().run_until_cancelled_owned(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(open.clone().run_until_cancelled_owned(async move {
                    let mut server = TcpStream::connect(upstream).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                }));
            }
        }));
    }

    /// Closes all connections; new ones are refused once the listener is gone.
    fn close(&self) {
        self.open.lock().unwrap().cancel();
    }

    async fn closed(&self) {
        self.close();
        let refused = async || TcpStream::connect(self.door).await.is_err().then_some(());
        eventually("connections are refused", refused).await;
    }
}

impl Drop for HttpDestination {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait(?Send)]
impl Destination for HttpDestination {
    const CAPABILITIES: Capabilities =
        Capabilities { payload_bytes_max: BODY_BYTES_MAX, recognises_repeats: false };

    async fn shared(_test: &str) -> Option<Self> {
        Some(Self::create().await)
    }

    async fn private(_test: &str) -> Option<Self> {
        Some(Self::create().await)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(HttpSink::new(HttpSettings::new(settings_name(), self.url())).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { payload: REFUSED.to_owned(), ..event }
    }

    fn oversize(&self, event: Event) -> Option<Event> {
        Some(Event { payload: "x".repeat(BODY_BYTES_MAX + 1), ..event })
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let taken = |request: &Received| request.answer == Answer::ok();
        self.target.received().into_iter().filter(taken).map(arrived).collect()
    }

    async fn stop(&self) {
        self.closed().await;
    }

    async fn kill(&self) {
        self.closed().await;
    }

    async fn start(&self) {
        let what = "the port is free again";
        let listener = eventually(what, async || TcpListener::bind(self.door).await.ok()).await;
        *self.open.lock().unwrap() = CancellationToken::new();
        self.serve(listener);
    }

    async fn freeze(&self) {
        self.network.blackhole();
    }

    async fn thaw(&self) {
        self.network.pass();
    }

    async fn remove(self) {}
}

/// Converts a request. The sink encodes header values as in RFC 8187 if a header cannot hold them.
fn arrived(request: Received) -> Arrived {
    let decoded = |(name, value): (&String, &String)| match value.strip_prefix("UTF-8''") {
        Some(encoded) => (name.clone(), percent_decoded(encoded)),
        None => (name.clone(), value.clone()),
    };
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
