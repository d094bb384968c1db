//! Late commits: the id below which nothing can still commit.
//!
//! Ids are taken at insert and become visible at commit, so a smaller id can appear after a larger
//! one was read. Reading the last assigned id `L` first and *then* the list of transactions that
//! write to the table gives a set with this property: every id up to `L` that is not visible yet
//! belongs to one of them. When all of them have ended, nothing at or below `L` can still appear.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Follows the horizon of one table.
#[derive(Debug, Default)]
pub struct Horizon {
    closed_until: i64,
    /// `L` and the transactions of its list that have not ended yet.
    watched: Option<(i64, BTreeSet<String>)>,
    /// Values of `L` that are too fresh to be used, where a store needs them to age.
    aging: VecDeque<(Instant, i64)>,
}

impl Horizon {
    /// Everything at or below this id is committed or rolled back.
    pub fn closed_until(&self) -> i64 {
        self.closed_until
    }

    /// Takes a look: `last_id` was read first, `writers` after it.
    pub fn observe(&mut self, last_id: i64, writers: BTreeSet<String>) {
        if let Some((upto, open)) = &mut self.watched {
            open.retain(|writer| writers.contains(writer));
            if !open.is_empty() {
                return;
            }
            self.closed_until = self.closed_until.max(*upto);
            self.watched = None;
        }
        if writers.is_empty() {
            self.closed_until = self.closed_until.max(last_id);
        } else {
            self.watched = Some((last_id, writers));
        }
    }

    /// Follows the last assigned id where it went back: ids above it are given out again.
    pub fn go_back_to(&mut self, last_id: i64) {
        self.closed_until = self.closed_until.min(last_id);
        if let Some((upto, _)) = &mut self.watched {
            *upto = last_id.min(*upto);
        }
        for (_, id) in &mut self.aging {
            *id = last_id.min(*id);
        }
    }

    /// As [`Horizon::observe`], for a database that lists a transaction only some time after it
    /// took its id: `last_id` is used once it is `lag` old.
    pub fn observe_after(
        &mut self,
        lag: Duration,
        now: Instant,
        last_id: i64,
        writers: BTreeSet<String>,
    ) {
        self.aging.push_back((now, last_id));
        let mut aged = None;
        while let Some((seen, id)) = self.aging.front().copied() {
            if now.duration_since(seen) < lag {
                break;
            }
            aged = Some(id);
            self.aging.pop_front();
        }
        if let Some(id) = aged {
            self.observe(id, writers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn stays_below_the_id_of_a_transaction_that_is_still_open() {
        let mut horizon = Horizon::default();
        horizon.observe(10, set(&[]));
        assert_eq!(horizon.closed_until(), 10);
        horizon.observe(20, set(&["a", "b"]));
        assert_eq!(horizon.closed_until(), 10);
        horizon.observe(30, set(&["b", "c"]));
        assert_eq!(horizon.closed_until(), 10, "b may hold an id up to 20");
        horizon.observe(40, set(&["c", "d"]));
        assert_eq!(horizon.closed_until(), 20, "c and d came later than 20");
        horizon.observe(50, set(&[]));
        assert_eq!(horizon.closed_until(), 50);
    }

    #[test]
    fn an_id_younger_than_the_lag_is_not_trusted() {
        let mut horizon = Horizon::default();
        let (start, lag) = (Instant::now(), Duration::from_secs(1));
        horizon.observe_after(lag, start, 10, set(&[]));
        horizon.observe_after(lag, start + lag / 2, 20, set(&[]));
        assert_eq!(horizon.closed_until(), 0);
        horizon.observe_after(lag, start + lag, 30, set(&[]));
        assert_eq!(horizon.closed_until(), 10);
    }
}
