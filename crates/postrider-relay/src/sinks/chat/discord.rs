//! Discord webhooks.

use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use super::Chat;
use crate::message::body::Escape;
use crate::sinks::http::Answer;

pub(super) const CHAT: Chat = Chat {
    text: "**{{ event_type }}** {{ aggregate_type }} {{ aggregate_id }}\n\
           ```json\n{{ payload_text[:1500] }}\n```",
    text_chars_max: 2_000,
    escape: Escape::Discord,
    // Mentions are disabled, so that an event's content cannot notify anyone.
    message: |text| json!({ "content": text, "allowed_mentions": { "parse": [] } }),
    confirmed,
    pause,
};

/// Adds `wait`: without it, Discord answers before it knows whether it has the message.
fn confirmed(mut url: Url) -> Url {
    if !url.query_pairs().any(|(name, _)| name == "wait") {
        url.query_pairs_mut().append_pair("wait", "true");
    }
    url
}

/// Returns the pause if the rate limit is used up: by the answer's own count, or because it was
/// exceeded.
fn pause(answer: &Answer) -> Option<Duration> {
    let header = |name: &str| answer.headers.get(name)?.to_str().ok();
    let reset_after = || seconds(header("x-ratelimit-reset-after")?.parse().ok()?);
    if answer.status.as_u16() == 429 {
        let body: Option<Value> = serde_json::from_str(&answer.body).ok();
        let stated = body.and_then(|body| seconds(body.get("retry_after")?.as_f64()?));
        return stated.or_else(|| answer.retry_after()).or_else(reset_after);
    }
    (header("x-ratelimit-remaining") == Some("0")).then(reset_after).flatten()
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}
