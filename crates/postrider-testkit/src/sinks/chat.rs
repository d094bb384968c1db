//! A chat webhook for one test.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_relay::{
    Sink,
    sinks::{ChatSettings, ChatSink},
};
use postrider_store::Event;

use super::{Arrived, Capabilities, Destination, HttpDestination, settings_name};
use crate::{Answer, Received};

/// A text that the webhook answers with 400.
const REFUSED: &str = "refuse this";

/// An HTTP receiver that parses chat messages. A message consists only of a text; here it has the
/// event id and the payload, and there are no headers.
pub struct ChatDestination(HttpDestination);

impl ChatDestination {
    fn new(receiver: HttpDestination) -> Self {
        receiver.target.answer_by(|request| match read(request).payload == REFUSED {
            true => Answer::status(400),
            false => Answer::ok(),
        });
        Self(receiver)
    }

    /// Returns settings of a sink that delivers here.
    pub fn settings(&self) -> ChatSettings {
        let text = Some("{{ event_id }} {{ payload_text }}".to_owned());
        ChatSettings { text, ..ChatSettings::new(settings_name(), self.url()) }
    }

    /// Returns the URL of the webhook.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Makes the webhook ask for a pause, or accept everything.
    pub fn limit(&self, is_limited: bool) {
        self.0.limit(is_limited);
    }
}

#[async_trait(?Send)]
impl Destination for ChatDestination {
    const CAPABILITIES: Capabilities = HttpDestination::CAPABILITIES;

    async fn shared(test: &str) -> Option<Self> {
        HttpDestination::shared(test).await.map(Self::new)
    }

    async fn private(test: &str) -> Option<Self> {
        HttpDestination::private(test).await.map(Self::new)
    }

    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(ChatSink::discord(self.settings()).unwrap())
    }

    fn refused(&self, event: Event) -> Event {
        Event { payload: REFUSED.to_owned(), ..event }
    }

    /// A text is cut to the chat's limit.
    fn oversize(&self, _event: Event) -> Option<Event> {
        None
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let taken = |request: &Received| request.answer == Answer::ok();
        self.0.target.received().iter().filter(|request| taken(request)).map(read).collect()
    }

    async fn stop(&self) {
        self.0.stop().await;
    }

    async fn kill(&self) {
        self.0.kill().await;
    }

    async fn start(&self) {
        self.0.start().await;
    }

    async fn freeze(&self) {
        self.0.freeze().await;
    }

    async fn thaw(&self) {
        self.0.thaw().await;
    }

    async fn remove(self) {}
}

fn read(request: &Received) -> Arrived {
    let message: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    let (event_id, payload) = message["content"].as_str().unwrap().split_once(' ').unwrap();
    let (event_id, payload) = (event_id.to_owned(), payload.to_owned());
    Arrived { event_id, headers: BTreeMap::new(), payload }
}
