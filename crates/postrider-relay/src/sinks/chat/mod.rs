//! Messages to people, through the webhooks of a chat. One request per event, one at a time per
//! webhook; its rate limit is honoured by waiting for the time that it names.

#[cfg(feature = "discord")]
mod discord;
#[cfg(feature = "slack")]
mod slack;

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use postrider_store::Event;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder};
use url::Url;

use crate::http::client_for;
use crate::message::body::{Body, Escape};
use crate::message::routes::RouteSettings;
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};
use crate::sinks::http::{Answer, Dialect, Exchange, Target, Targets};

/// Settings of a chat sink.
#[derive(Debug, Clone)]
pub struct ChatSettings {
    /// Name in the configuration.
    pub name: String,
    /// The webhook for events that no route takes.
    pub url: Option<String>,
    /// Routes to other webhooks.
    pub routes: Vec<RouteSettings>,
    /// Template (Jinja) of the message text; absent: type, aggregate and payload.
    pub text: Option<String>,
    /// Template (Jinja) of the whole request as JSON, instead of a text.
    pub body: Option<String>,
    /// Timeout of one request.
    pub timeout: Duration,
    /// Forward proxy; absent: the proxies of the environment.
    pub proxy: Option<String>,
}

impl ChatSettings {
    /// Creates settings with the defaults: the usual text, 10 s.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: Some(url.into()),
            routes: Vec::new(),
            text: None,
            body: None,
            timeout: Duration::from_secs(10),
            proxy: None,
        }
    }
}

/// The differences between chats.
struct Chat {
    /// Default template of the text.
    text: &'static str,
    /// Maximum characters of a text.
    text_chars_max: usize,
    /// How values are escaped in a text.
    escape: Escape,
    /// Builds the request with that text.
    message: fn(&str) -> serde_json::Value,
    /// Adds what a webhook needs to confirm a message.
    confirmed: fn(Url) -> Url,
    /// Returns how long nothing may be sent to the webhook from now on.
    pause: fn(&Answer) -> Option<Duration>,
}

/// Delivers to a chat.
pub struct ChatSink {
    chat: Chat,
    name: String,
    template: Body,
    /// Whether the template renders the whole request.
    whole: bool,
    exchange: Exchange,
    proxy: Option<String>,
}

impl ChatSink {
    /// Creates a sink for Discord. Checks the settings without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    #[cfg(feature = "discord")]
    pub fn discord(settings: ChatSettings) -> Result<Self, SinkError> {
        Self::new(discord::CHAT, settings)
    }

    /// Creates a sink for Slack. Checks the settings without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    #[cfg(feature = "slack")]
    pub fn slack(settings: ChatSettings) -> Result<Self, SinkError> {
        Self::new(slack::CHAT, settings)
    }

    fn new(chat: Chat, settings: ChatSettings) -> Result<Self, SinkError> {
        let name = settings.name.clone();
        Self::build(chat, settings).map_err(|message| SinkError { sink: name, message })
    }

    fn build(chat: Chat, settings: ChatSettings) -> Result<Self, String> {
        let template = match (&settings.text, &settings.body) {
            (Some(_), Some(_)) => {
                return Err("`text` and `body` exclude each other: `body` is all".to_owned());
            }
            (None, Some(body)) => Body::compile("body", body, Escape::Json)?,
            (text, None) => {
                Body::compile("text", text.as_deref().unwrap_or(chat.text), chat.escape)?
            }
        };
        Ok(Self {
            template,
            whole: settings.body.is_some(),
            exchange: Exchange {
                client: client_for(settings.timeout, settings.proxy.as_deref(), false, None)?,
                targets: Targets::new(settings.url.as_deref(), &settings.routes)?,
                timeout: settings.timeout,
                // The limits are per webhook and low; sending one after the other also keeps the
                // order.
                at_once_max: 1,
                deny_private_addresses: false,
                keep_response: false,
                places: Mutex::default(),
            },
            name: settings.name,
            proxy: settings.proxy,
            chat,
        })
    }
}

impl Dialect for ChatSink {
    /// Sends only the text of the event: its headers are not meant for people in a chat.
    fn request(
        &self,
        client: &Client,
        url: Url,
        view: &EventView<'_>,
    ) -> Result<RequestBuilder, Outcome> {
        let rendered = self.template.render(view);
        let rendered = rendered.map_err(|error| Outcome::CannotEncode { error })?;
        let body = match self.whole {
            true => rendered,
            false => (self.chat.message)(&cut(&rendered, self.chat.text_chars_max)).to_string(),
        };
        let request = client.post((self.chat.confirmed)(url));
        Ok(request.header(CONTENT_TYPE, "application/json").body(body))
    }

    /// The webhook, because rate limits apply per webhook.
    fn place<'a>(&self, target: &'a Target<'_>) -> &'a str {
        target.url.as_str()
    }

    fn asks_to_wait(&self, answer: &Answer) -> Option<Duration> {
        (self.chat.pause)(answer).or_else(|| answer.retry_after())
    }

    fn pause(&self, answer: &Answer) -> Option<Duration> {
        (self.chat.pause)(answer)
    }
}

#[async_trait]
impl Sink for ChatSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        self.exchange.targets.host(&EventView::new(event))
    }

    fn only_destination(&self) -> Option<&str> {
        self.exchange.targets.only_host()
    }

    fn enters_each(&self) -> bool {
        true
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        self.exchange.deliver(batch, self).await
    }

    async fn check(&self) -> Result<(), SinkError> {
        let checked = self.exchange.check(self.proxy.as_deref()).await;
        checked.map_err(|message| SinkError { sink: self.name.clone(), message })
    }

    async fn close(&self) {}
}

/// Truncates a text to the limit and marks that there was more. A code block that is left open is
/// closed: otherwise its content would be formatted.
fn cut(text: &str, chars_max: usize) -> Cow<'_, str> {
    const FENCE: &str = "```";
    if text.len() <= chars_max || text.chars().count() <= chars_max {
        return Cow::Borrowed(text);
    }
    let kept = |end: &str| {
        let chars = chars_max - 1 - end.chars().count();
        format!("{}…{end}", text.chars().take(chars).collect::<String>())
    };
    let plain = kept("");
    match plain.matches(FENCE).count() % 2 {
        0 => Cow::Owned(plain),
        _ => Cow::Owned(kept("\n```")),
    }
}
