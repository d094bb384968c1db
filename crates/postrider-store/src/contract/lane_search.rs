//! Helpers for stores that first search for ids and then read the rows they found.

use super::ClaimLimit;
#[cfg(feature = "mysql")]
use super::{BlockedKey, Key};

/// Of the ids and sizes that a search found, returns the ids up to the first one that reaches the
/// byte limit, and whether there may be more.
pub(crate) fn up_to_limit(found: &[(i64, u64)], limit: ClaimLimit) -> (Vec<i64>, bool) {
    let mut total = 0_u64;
    let ids: Vec<i64> = found
        .iter()
        .take_while(|(_, bytes)| {
            let room = total < limit.bytes;
            total = total.saturating_add(*bytes);
            room
        })
        .map(|(id, _)| *id)
        .collect();
    let full = total >= limit.bytes || found.len() >= limit.rows as usize;
    (ids, full && !found.is_empty())
}

#[cfg(feature = "mysql")]
impl BlockedKey {
    /// Creates an entry for a key of which nothing else is known yet.
    pub(crate) fn without_head(key: Key) -> Self {
        Self {
            key,
            head_id: None,
            last_error: None,
            retry_count: 0,
            next_retry_at: None,
            waiting: 0,
            more: false,
            parked: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ends_with_the_row_that_reaches_a_limit() {
        let found = [(1, 400), (2, 400), (3, 5_000), (4, 400)];
        let read = |rows, bytes| up_to_limit(&found, ClaimLimit::new(rows, bytes));
        assert_eq!(read(10, 10_000), (vec![1, 2, 3, 4], false));
        assert_eq!(read(4, 10_000), (vec![1, 2, 3, 4], true), "there may be more");
        assert_eq!(read(10, 800), (vec![1, 2], true));
        assert_eq!(read(10, 1_000), (vec![1, 2, 3], true), "an over-large one is read too");
        assert_eq!(read(10, 1), (vec![1], true), "the first one in any case");
        assert_eq!(up_to_limit(&[], ClaimLimit::new(10, 1)), (vec![], false));
    }
}
