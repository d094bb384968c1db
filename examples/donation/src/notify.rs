//! Notifications: by Discord if a webhook is configured, in the log otherwise. After three attempts
//! the event becomes a dead letter; the donation is not affected.

use std::path::PathBuf;
use std::sync::Arc;

use postrider::Outbox;
use postrider_relay::{
    OutboxConfig, Preset, Relay, RelayConfig, Sink, SinkError,
    sinks::{ChatSettings, ChatSink, LogSink},
};
use postrider_store::Database;

const TEXT: &str = "{{ payload.guest_id }} donated {{ payload.amount }} points to \
                    {{ payload.admin_id }} ({{ payload.request_id }})";

/// Builds the relay, which runs next to the endpoints.
pub(crate) fn relay(
    store: Arc<dyn Database>,
    outbox: Outbox,
    webhook: Option<String>,
) -> Result<Relay, SinkError> {
    let sink: Arc<dyn Sink> = match webhook {
        Some(url) => {
            let settings = ChatSettings::new("discord", url);
            Arc::new(ChatSink::discord(ChatSettings { text: Some(TEXT.to_owned()), ..settings })?)
        }
        None => Arc::new(LogSink::new("log")),
    };
    let config = RelayConfig {
        backup_folder: PathBuf::from("donation-data/dead-letters"),
        ..RelayConfig::default()
    };
    Ok(Relay::new(store, config).outbox(OutboxConfig::new(outbox, Preset::notification(), sink)))
}
