//! What an append answers, and the order in which a batch is inserted.

use std::collections::HashMap;

use crate::NewEvent;

/// The answer to one appended event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a duplicate means that this event was appended before"]
pub enum Appended {
    /// The event is in the outbox; it is delivered once the caller's transaction commits.
    New {
        /// Row id in the outbox, assigned by the database.
        id: i64,
        /// Identity of the event in headers, `Idempotency-Key` and the inbox.
        event_id: String,
    },
    /// An event with this `request_id` was appended before; nothing was written.
    Duplicate {
        /// Row id that the first event had.
        id: i64,
    },
}

impl Appended {
    /// Row id of the new event, or of the first one with the same `request_id`.
    pub fn id(&self) -> i64 {
        match self {
            Self::New { id, .. } | Self::Duplicate { id } => *id,
        }
    }

    /// Whether the `request_id` was known before.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}

/// The order in which a batch is inserted: positions in `events`.
///
/// Two batches that share request ids would deadlock if they took them in different orders, so they
/// are taken sorted. But ids ascend in this order too, and the events of one key must keep theirs:
/// the keys are sorted by their smallest request id, and within a key nothing moves.
pub(crate) fn insert_order(events: &[NewEvent]) -> Vec<usize> {
    let mut smallest: HashMap<(&str, &str), &str> = HashMap::new();
    for event in events {
        let request_id = event.request_id.as_deref().unwrap_or_default();
        smallest
            .entry((&event.aggregate_type, &event.aggregate_id))
            .and_modify(|known| *known = request_id.min(known))
            .or_insert(request_id);
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_key(|position| {
        let event = &events[*position];
        smallest[&(event.aggregate_type.as_str(), event.aggregate_id.as_str())]
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_sorted_by_request_id_but_never_within_a_key() {
        let event = |key: &str, request: &str| NewEvent::new("k", key, "T", "").request_id(request);
        let events = [event("a", "9"), event("b", "5"), event("a", "1"), event("c", "3")];
        assert_eq!(insert_order(&events), [0, 2, 3, 1], "a (1) before c (3) before b (5)");
    }
}
