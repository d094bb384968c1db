//! Alerts to the log. It does not contain payloads.

use async_trait::async_trait;

use super::{Channel, Message, MessageState, NotSent, Severity, text};

/// The log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogChannel;

#[async_trait]
impl Channel for LogChannel {
    fn name(&self) -> &str {
        "log"
    }

    fn target(&self) -> &str {
        "the log of this process"
    }

    async fn send(&self, message: &Message) -> Result<String, NotSent> {
        let (title, fields) = (text::title(message), text::one_line(&message.fields));
        match (message.state, message.severity) {
            (MessageState::Raised, Severity::Critical) => {
                tracing::error!(target: "postrider::alert", "{title}: {fields}");
            }
            (MessageState::Raised, Severity::Warning) => {
                tracing::warn!(target: "postrider::alert", "{title}: {fields}");
            }
            _ => tracing::info!(target: "postrider::alert", "{title}: {fields}"),
        }
        Ok("written".to_owned())
    }
}
