//! Alerts to a Discord webhook.

use std::time::Duration;

use async_trait::async_trait;
use url::Url;

use super::webhook::{answered, host_of, sent};
use super::{Channel, Message, NotSent, text};

/// Discord accepts at most 2,000 characters of content.
const CONTENT_CHARS_MAX: usize = 2_000;

/// A Discord webhook.
pub struct DiscordChannel {
    client: reqwest::Client,
    name: String,
    target: String,
    url: Url,
}

impl DiscordChannel {
    /// Creates a channel to this webhook.
    ///
    /// # Errors
    /// If the URL is not valid, or the HTTP client cannot be created.
    pub fn new(name: impl Into<String>, url: &str) -> Result<Self, String> {
        let (url, target) = host_of(url)?;
        let client = crate::http::client(Duration::from_secs(10))?;
        Ok(Self { client, name: name.into(), target, url })
    }
}

#[async_trait]
impl Channel for DiscordChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn target(&self) -> &str {
        &self.target
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        let headline = text::headline(message);
        let content = format!("**{headline}**\n{}", text::lines(&message.fields));
        let mut event = String::new();
        if let Some(whole) = &message.event {
            event = serde_json::to_string(whole).map_err(|e| NotSent::for_now(e.to_string()))?;
        }
        // A backtick in the event must not end the code block. As JSON, the escaped form is
        // equivalent.
        let whole = format!("{content}```json\n{}\n```", event.replace('`', "\\u0060"));
        // An event that is too long is sent as an attachment, so that nothing of it is cut off.
        let request = if event.is_empty() || whole.chars().count() <= CONTENT_CHARS_MAX {
            let shown = if event.is_empty() { content } else { whole };
            self.client
                .post(self.url.clone())
                .header("content-type", "application/json")
                .body(content_of(&shown).to_string())
        } else {
            let (kind, body) = attachment(&content, &event);
            self.client.post(self.url.clone()).header("content-type", kind).body(body)
        };
        answered(sent(request).await?)
    }
}

/// Builds the message body. Mentions are disabled, so that the text of an error cannot notify
/// anyone.
fn content_of(text: &str) -> serde_json::Value {
    serde_json::json!({
        "content": text::cut(text, CONTENT_CHARS_MAX),
        "allowed_mentions": { "parse": [] },
    })
}

/// Builds a multipart form with a message and one JSON file.
fn attachment(content: &str, event: &str) -> (String, String) {
    let boundary = uuid::Uuid::new_v4().simple().to_string();
    let message = content_of(content);
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\
         Content-Type: application/json\r\n\r\n{message}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"files[0]\"; \
         filename=\"event.json\"\r\nContent-Type: application/json\r\n\r\n{event}\r\n\
         --{boundary}--\r\n"
    );
    (format!("multipart/form-data; boundary={boundary}"), body)
}
