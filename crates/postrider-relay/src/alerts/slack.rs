//! Alerts to a Slack incoming webhook.
//!
//! Slack truncates a long text, and a webhook cannot upload a file. An event is therefore sent in
//! as many numbered messages as it needs; joined, they are the event as JSON.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use url::Url;

use super::webhook::{answered, host_of, sent};
use super::{Channel, Message, NotSent, text};

/// Slack truncates a text at 40,000 characters.
const TEXT_CHARS_MAX: usize = 40_000;
/// Characters of the event per message: with the code fences and the number it stays below the
/// limit.
const PART_CHARS: usize = 30_000;
/// Longest wait within one attempt. Slack accepts about one message per second, and says how long
/// to wait; longer waits are left to the queue.
const LIMITED_WAIT_MAX: Duration = Duration::from_secs(10);

/// A Slack incoming webhook.
pub struct SlackChannel {
    client: reqwest::Client,
    name: String,
    target: String,
    url: Url,
    /// The message that is being sent, and how many of its texts Slack has accepted, so that
    /// another attempt continues where the last one ended.
    progress: Mutex<(String, usize)>,
}

impl SlackChannel {
    /// Creates a channel to this webhook.
    ///
    /// # Errors
    /// If the URL is not valid, or the HTTP client cannot be created.
    pub fn new(name: impl Into<String>, url: &str) -> Result<Self, String> {
        let (url, target) = host_of(url)?;
        let client = crate::http::client(Duration::from_secs(10))?;
        Ok(Self { client, name: name.into(), target, url, progress: Mutex::default() })
    }

    /// Returns how many texts of a message Slack has already accepted.
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

/// Returns the texts to send: one with the message and its event if that is short enough, otherwise
/// the message followed by the event in parts.
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

/// Escapes text, so that Slack does not interpret a value as a command such as `<!channel>`.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes all characters in JSON that Slack would interpret. They occur only in strings, where
/// JSON has an equivalent escape.
fn harmless(json: &str) -> String {
    let escapes = [('&', "\\u0026"), ('<', "\\u003c"), ('>', "\\u003e"), ('`', "\\u0060")];
    escapes.into_iter().fold(json.to_owned(), |text, (sign, escape)| text.replace(sign, escape))
}
