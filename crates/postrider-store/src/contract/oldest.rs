//! Remembers where the oldest live row was found.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider::Outbox;

use super::Result;

/// A transaction that commits late may insert an older row than the remembered one, so after this
/// time all ids are searched again.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The oldest row that each outbox had at the last search. While a transaction is open anywhere,
/// deleted rows stay in the index: a search from the beginning passes all of them, a million in
/// half a second.
#[derive(Debug, Default)]
pub(crate) struct OldestRows(Mutex<HashMap<String, Remembered>>);

#[derive(Debug, Clone, Copy)]
struct Remembered {
    id: i64,
    swept_at: Instant,
}

/// Id and age in seconds of the first row at or above an id.
pub(crate) type Oldest = Option<(i64, i64)>;

impl OldestRows {
    /// Returns the age of the oldest row, with as few searches as possible.
    pub(crate) async fn age_s<L>(
        &self,
        outbox: &Outbox,
        pending: i64,
        look: impl Fn(i64) -> L,
    ) -> Result<Option<i64>>
    where
        L: Future<Output = Result<Oldest>>,
    {
        let from = self.look_from(outbox, Instant::now());
        let mut oldest = look(from).await?;
        self.found(outbox, from, oldest, Instant::now());
        // Only a row that was committed late can be left, and it is the oldest one.
        if oldest.is_none() && from > 0 && pending > 0 {
            oldest = look(0).await?;
            self.found(outbox, 0, oldest, Instant::now());
        }
        Ok(oldest.map(|(_, age_s)| age_s))
    }

    /// Returns the id to search from; 0 to search all ids.
    fn look_from(&self, outbox: &Outbox, now: Instant) -> i64 {
        let fresh = |row: &&Remembered| now.duration_since(row.swept_at) < SWEEP_EVERY;
        self.rows().get(outbox.table()).filter(fresh).map_or(0, |row| row.id)
    }

    fn found(&self, outbox: &Outbox, looked_from: i64, oldest: Oldest, now: Instant) {
        let mut rows = self.rows();
        let known = rows.get(outbox.table()).copied();
        let swept_at = known.filter(|_| looked_from > 0).map_or(now, |row| row.swept_at);
        // If there is no row, the next one will be above all previous ones.
        let id = oldest.map(|(id, _)| id).or(known.map(|row| row.id)).unwrap_or(0);
        rows.insert(outbox.table().to_owned(), Remembered { id, swept_at });
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        rows.found(&outbox, 0, Some((7, 0)), start);
        assert_eq!(rows.look_from(&outbox, after(10)), 7);
        rows.found(&outbox, 7, Some((9, 0)), after(10));
        rows.found(&outbox, 9, None, after(20));
        assert_eq!(rows.look_from(&outbox, after(59)), 9, "where the next one will be");
        assert_eq!(rows.look_from(&outbox, after(60)), 0, "one may have been committed late");
        rows.found(&outbox, 0, None, after(60));
        assert_eq!(rows.look_from(&outbox, after(119)), 9, "none was");
        rows.found(&outbox, 0, Some((8, 0)), after(120));
        assert_eq!(rows.look_from(&outbox, after(130)), 8, "one was");
        let others = Outbox::new("others").unwrap();
        rows.found(&others, 0, None, start);
        assert_eq!(rows.look_from(&others, start), 0, "nothing is known");
    }

    #[tokio::test]
    async fn a_row_below_the_remembered_one_is_found_when_no_other_is_left() {
        let (rows, outbox) = (OldestRows::default(), Outbox::new("orders").unwrap());
        let looks = Mutex::new(Vec::new());
        let ask = async |table: &[(i64, i64)]| {
            let look = async |from: i64| {
                looks.lock().unwrap().push(from);
                Ok(table.iter().copied().find(|(id, _)| *id >= from))
            };
            let pending = table.len() as i64;
            let age_s = rows.age_s(&outbox, pending, look).await.unwrap();
            (age_s, std::mem::take(&mut *looks.lock().unwrap()))
        };
        assert_eq!(ask(&[(7, 70), (8, 60)]).await, (Some(70), vec![0]));
        assert_eq!(ask(&[(8, 61)]).await, (Some(61), vec![7]));
        assert_eq!(ask(&[]).await, (None, vec![8]), "nothing pending: no second look");
        assert_eq!(ask(&[(5, 90)]).await, (Some(90), vec![8, 0]), "committed late");
    }
}
