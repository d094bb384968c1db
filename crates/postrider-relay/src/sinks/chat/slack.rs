//! Slack incoming webhooks.

use serde_json::json;

use super::Chat;
use crate::message::body::Escape;

pub(super) const CHAT: Chat = Chat {
    text: "*{{ event_type }}* {{ aggregate_type }} {{ aggregate_id }}\n\
           ```{{ payload_text[:3000] }}```",
    // Slack recommends 4,000 and truncates at 40,000.
    text_chars_max: 40_000,
    escape: Escape::Slack,
    message: |text| json!({ "text": text }),
    confirmed: |url| url,
    pause: |answer| (answer.status.as_u16() == 429).then(|| answer.retry_after()).flatten(),
};
