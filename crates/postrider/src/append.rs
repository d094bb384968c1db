//! The result of an append, and the order in which a batch is inserted.

use std::collections::HashSet;

use crate::NewEvent;

/// The result of appending one event.
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
    /// Returns the row id of the new event, or of the first one with the same `request_id`.
    pub fn id(&self) -> i64 {
        match self {
            Self::New { id, .. } | Self::Duplicate { id } => *id,
        }
    }

    /// Returns whether the `request_id` was known before.
    pub fn is_duplicate(&self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}

/// Returns the order in which a batch is inserted, as positions in `events`.
///
/// Two batches that share request ids would deadlock if they inserted them in different orders, so
/// keys with request ids are sorted, after those without. Within a key the order does not change:
/// ids ascend in this order, and the events of a key must keep theirs. Batches that share events of
/// a key have those in the same order as well.
pub(crate) fn insert_order(events: &[NewEvent]) -> Vec<usize> {
    let key = |event: &NewEvent| (event.aggregate_type.clone(), event.aggregate_id.clone());
    let with_ids: HashSet<_> =
        events.iter().filter(|event| event.request_id.is_some()).map(key).collect();
    let mut order: Vec<usize> = (0..events.len()).collect();
    order.sort_by_cached_key(|position| {
        Some(key(&events[*position])).filter(|k| with_ids.contains(k))
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_sorted_by_key_but_never_within_one() {
        let event = |key: &str, request: &str| NewEvent::new("k", key, "T", "").request_id(request);
        let events = [event("c", "3"), event("a", "9"), event("b", "5"), event("a", "1")];
        assert_eq!(insert_order(&events), [1, 3, 2, 0]);
        let plain = ["y", "x", "y"].map(|key| NewEvent::new("k", key, "T", ""));
        assert_eq!(insert_order(&plain), [0, 1, 2], "without request ids nothing moves");
    }
}
