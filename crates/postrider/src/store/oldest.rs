//! Where to look for the oldest live row.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Outbox;

/// A transaction that commits late may bring an older row than the one that is remembered: after this time all
/// ids are looked at again.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The oldest row that each outbox had when it was last asked. While a transaction is held open anywhere, rows
/// that are gone stay in the index: a look from the beginning passes all of them, a million in half a second.
#[derive(Debug, Default)]
pub(crate) struct OldestRows(Mutex<HashMap<String, Remembered>>);

#[derive(Debug, Clone, Copy)]
struct Remembered {
    id: i64,
    swept_at: Instant,
}

impl OldestRows {
    /// The id to look from; 0 for a look at all of them.
    pub(crate) fn look_from(&self, outbox: &Outbox, now: Instant) -> i64 {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |row: &&Remembered| now.duration_since(row.swept_at) < SWEEP_EVERY;
        rows.get(outbox.table()).filter(fresh).map_or(0, |row| row.id)
    }

    /// Remembers what a look from an id found.
    pub(crate) fn found(&self, outbox: &Outbox, looked_from: i64, id: Option<i64>, now: Instant) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = rows.get(outbox.table()).copied();
        let swept_at = known.filter(|_| looked_from > 0).map_or(now, |row| row.swept_at);
        // Where there is none, the next one will be above all that were.
        let id = id.or(known.map(|row| row.id)).unwrap_or(0);
        rows.insert(outbox.table().to_owned(), Remembered { id, swept_at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_begins_at_what_was_the_oldest_row_but_for_once_a_minute() {
        let (rows, outbox) = (OldestRows::default(), Outbox::new("orders").unwrap());
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(rows.look_from(&outbox, start), 0);
        rows.found(&outbox, 0, Some(7), start);
        assert_eq!(rows.look_from(&outbox, after(10)), 7);
        rows.found(&outbox, 7, Some(9), after(10));
        rows.found(&outbox, 9, None, after(20));
        assert_eq!(rows.look_from(&outbox, after(59)), 9, "where the next one will be");
        assert_eq!(rows.look_from(&outbox, after(60)), 0, "one may have been committed late");
        rows.found(&outbox, 0, None, after(60));
        assert_eq!(rows.look_from(&outbox, after(119)), 9, "none was");
        rows.found(&outbox, 0, Some(8), after(120));
        assert_eq!(rows.look_from(&outbox, after(130)), 8, "one was");
        let others = Outbox::new("others").unwrap();
        rows.found(&others, 0, None, start);
        assert_eq!(rows.look_from(&others, start), 0, "nothing is known");
    }
}
