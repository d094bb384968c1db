//! A Slack incoming webhook.

use std::time::Duration;

use async_trait::async_trait;
use url::Url;

use super::webhook::{answered, host_of, sent};
use super::{Channel, Message, NotSent, text};

/// Slack cuts a text at 40,000 characters.
const TEXT_CHARS_MAX: usize = 40_000;

/// A Slack incoming webhook.
pub struct SlackChannel {
    client: reqwest::Client,
    name: String,
    target: String,
    url: Url,
}

impl SlackChannel {
    /// A channel to that webhook.
    ///
    /// # Errors
    /// If the URL is none, or no HTTP client can be made.
    pub fn new(name: impl Into<String>, url: &str) -> Result<Self, String> {
        let (url, target) = host_of(url)?;
        let client = crate::sinks::http::client(Duration::from_secs(10))?;
        Ok(Self { client, name: name.into(), target, url })
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
        let (headline, lines) = (text::headline(message), text::lines(&message.fields));
        let mut shown = format!("*{}*\n{}", escaped(&headline), escaped(&lines));
        if let Some(event) = &message.event {
            let event =
                serde_json::to_string(event).map_err(|e| NotSent::for_now(e.to_string()))?;
            shown.push_str(&format!("```{}```", escaped(&event)));
        }
        let body = serde_json::json!({ "text": text::cut(&shown, TEXT_CHARS_MAX) }).to_string();
        let request = self.client.post(self.url.clone());
        answered(sent(request.header("content-type", "application/json").body(body)).await?)
    }
}

/// So that no value is read as a command such as `<!channel>`.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
