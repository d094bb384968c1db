//! A Slack incoming webhook.
//!
//! Slack cuts a long text, and a webhook cannot upload a file. So an event travels in as many
//! messages as it needs, each with its number; put together they are the event as JSON.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use url::Url;

use super::webhook::{answered, host_of, sent};
use super::{Channel, Message, NotSent, text};

/// Slack cuts a text at 40,000 characters.
const TEXT_CHARS_MAX: usize = 40_000;
/// Characters of the event in one message: with the fences and the number it stays below the limit.
const PART_CHARS: usize = 30_000;
/// Slack takes about one message a second, and says how long to wait. Longer waits are the queue's.
const LIMITED_WAIT_MAX: Duration = Duration::from_secs(10);

/// A Slack incoming webhook.
pub struct SlackChannel {
    client: reqwest::Client,
    name: String,
    target: String,
    url: Url,
    /// The message that is being sent and how many of its texts Slack has, so that another try goes
    /// on where the last one ended.
    progress: Mutex<(String, usize)>,
}

impl SlackChannel {
    /// A channel to that webhook.
    ///
    /// # Errors
    /// If the URL is none, or no HTTP client can be made.
    pub fn new(name: impl Into<String>, url: &str) -> Result<Self, String> {
        let (url, target) = host_of(url)?;
        let client = crate::sinks::http::client(Duration::from_secs(10))?;
        Ok(Self { client, name: name.into(), target, url, progress: Mutex::default() })
    }

    /// How many texts of a message Slack has already.
    fn texts_sent(&self, message: &Message) -> usize {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.0 == message.id { progress.1 } else { 0 }
    }

    fn note_sent(&self, message: &Message, texts: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        *progress = (message.id.clone(), texts);
    }

    async fn post(&self, shown: &str) -> Result<String, NotSent> {
        let body = serde_json::json!({ "text": shown }).to_string();
        loop {
            let request = self.client.post(self.url.clone());
            let request = request.header("content-type", "application/json").body(body.clone());
            let answer = sent(request).await?;
            if answer.status() != StatusCode::TOO_MANY_REQUESTS {
                return answered(answer);
            }
            let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let asked = asked.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            match asked.filter(|wait| *wait <= LIMITED_WAIT_MAX) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return answered(answer),
            }
        }
    }
}

#[async_trait]
impl Channel for SlackChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        let texts = texts(message).map_err(|e| NotSent::for_now(e.to_string()))?;
        let mut answer = "sent before".to_owned();
        for (index, text) in texts.iter().enumerate().skip(self.texts_sent(message)) {
            answer = self.post(text).await?;
            self.note_sent(message, index + 1);
        }
        Ok(answer)
    }
}

/// What is sent: the message, with its event where both fit into one text; otherwise the event in
/// parts behind it.
fn texts(message: &Message) -> Result<Vec<String>, serde_json::Error> {
    let (headline, lines) = (text::headline(message), text::lines(&message.fields));
    let shown = format!("*{}*\n{}", escaped(&headline), escaped(&lines));
    let Some(event) = &message.event else {
        return Ok(vec![text::cut(&shown, TEXT_CHARS_MAX)]);
    };
    let event = harmless(&serde_json::to_string(event)?);
    let whole = format!("{shown}```{event}```");
    if whole.chars().count() <= TEXT_CHARS_MAX {
        return Ok(vec![whole]);
    }
    let parts = text::parts(&event, PART_CHARS);
    let (id, count) = (&message.id, parts.len());
    let numbered = parts.iter().enumerate().map(|(index, part)| {
        format!("The event of alert {id}, part {} of {count}\n```{part}```", index + 1)
    });
    let first = format!("The event follows in {count} parts (alert {id})\n");
    let first = text::cut(&format!("{shown}{first}"), TEXT_CHARS_MAX);
    Ok(std::iter::once(first).chain(numbered).collect())
}

/// So that no value is read as a command such as `<!channel>`.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The same JSON, with nothing in it that Slack reads as its own: these characters occur only in
/// strings, where JSON has another spelling for them.
fn harmless(json: &str) -> String {
    let escapes = [('&', "\\u0026"), ('<', "\\u003c"), ('>', "\\u003e"), ('`', "\\u0060")];
    escapes.into_iter().fold(json.to_owned(), |text, (sign, escape)| text.replace(sign, escape))
}
