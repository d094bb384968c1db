//! The identity by which a stream tells the repeat of a delivery from another delivery.

use postrider_store::REPLAY_HEADER;
use sha2::{Digest, Sha256};

use crate::message::view::EventView;

/// Bytes of the hash that are shown. The event id is in front of it, so the hash only has to tell
/// the deliveries of one event apart.
const HASH_BYTES: usize = 8;

/// Returns the message id of a delivery: the event id, and a hash of what makes this delivery
/// another one than those of the same event through other rows or to other subjects.
///
/// A row keeps its id through retries and crashes. It has another one in each outbox of a fan-out
/// and after a retry by an operator; ids may come again after a `TRUNCATE`, so the marks of
/// operators' actions count as well.
///
/// # Errors
/// If the event's headers are not valid.
pub(super) fn message_id(
    outbox: Option<&str>,
    view: &EventView<'_>,
    subject: &str,
) -> Result<String, String> {
    let event = view.event;
    let replay = view.headers()?.get(REPLAY_HEADER).map_or("", String::as_str);
    let mut hasher = Sha256::new();
    for text in [outbox.unwrap_or_default(), subject, replay] {
        // Lengths are included, so that no two lists of texts produce the same bytes.
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.update(event.id.to_le_bytes());
    hasher.update(event.redrive_count.to_le_bytes());
    let hash = hasher.finalize();
    let hash: String = hash[..HASH_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}.{hash}", event.event_id))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use postrider_store::Event;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn id(outbox: Option<&str>, event: &Event, subject: &str) -> String {
        message_id(outbox, &EventView::new(event), subject).unwrap()
    }

    proptest! {
        /// Each part makes another delivery, and nothing that a retry changes does.
        #[test]
        fn fuzz_nats_message_ids(event in fuzz::event()) {
            let event = Event { headers: None, ..event };
            let first = id(Some("a"), &event, "s");
            prop_assert!(first.starts_with(&event.event_id));
            let replay = |job: u32| {
                let headers = Some(format!(r#"{{"postrider-replay":"{job}"}}"#));
                id(Some("a"), &Event { headers, ..event.clone() }, "s")
            };
            let redriven = Event { redrive_count: event.redrive_count ^ 1, ..event.clone() };
            let copied = Event { id: event.id ^ 1, ..event.clone() };
            let all = HashSet::from([
                first.clone(),
                id(None, &event, "s"),
                id(Some("b"), &event, "s"),
                id(Some("as"), &event, ""),
                id(Some("a"), &event, "t"),
                id(Some("a"), &redriven, "s"),
                id(Some("a"), &copied, "s"),
                replay(1),
                replay(2),
            ]);
            prop_assert_eq!(all.len(), 9);
            let retried = Event {
                retry_count: event.retry_count ^ 1,
                crash_count: event.crash_count ^ 1,
                version: event.version ^ 1,
                ..event.clone()
            };
            prop_assert_eq!(id(Some("a"), &retried, "s"), first);
        }
    }
}
