//! Late commits: tracks the id up to which no transaction can still commit.
//!
//! Ids are taken at insert and become visible at commit, so a smaller id can appear after a larger
//! one was read. Reading the last assigned id `L` first and *then* the list of transactions that
//! write to the table gives a set with this property: every id up to `L` that is not visible yet
//! belongs to one of them. When all of them have ended, nothing at or below `L` can still appear.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Prefix of PostgreSQL's name for a prepared transaction (two-phase commit) that the server
/// recovered from its files at startup: `-1/759`. Before, the same transaction has the name of the
/// session that began it, such as `3/44`, prepared or not. MariaDB keeps the name (the id of the
/// transaction) through disconnects and restarts.
const RECOVERED: &str = "-1/";

/// Tracks the horizon of one table.
#[derive(Debug, Default)]
pub struct Horizon {
    closed_until: i64,
    /// `L`, and the transactions of its list that have not ended yet.
    watched: Option<(i64, BTreeSet<String>)>,
    /// Recovered transactions of the last observation.
    recovered: BTreeSet<String>,
    /// Values of `L` that are too recent to be used, for stores that need them to age.
    aging: VecDeque<(Instant, i64)>,
}

impl Horizon {
    /// Returns the horizon: every transaction with an id at or below it has committed or rolled
    /// back.
    pub fn closed_until(&self) -> i64 {
        self.closed_until
    }

    /// Notes an observation: `last_id` was read first, `writers` after it.
    ///
    /// A transaction that the server has recovered since the last observation may be any of those
    /// that are watched, under a new name. It is watched with them.
    pub fn observe(&mut self, last_id: i64, writers: BTreeSet<String>) {
        let recovered = writers.iter().filter(|writer| writer.starts_with(RECOVERED)).cloned();
        let recovered: BTreeSet<String> = recovered.collect();
        let before = std::mem::replace(&mut self.recovered, recovered);
        if let Some((upto, open)) = &mut self.watched {
            open.retain(|writer| writers.contains(writer));
            open.extend(self.recovered.difference(&before).cloned());
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

    /// Discards what is known of ids above this one, because they are assigned again.
    pub fn go_back_to(&mut self, id: i64) {
        self.closed_until = self.closed_until.min(id);
        if let Some((upto, _)) = &mut self.watched {
            *upto = id.min(*upto);
        }
        for (_, aging) in &mut self.aging {
            *aging = id.min(*aging);
        }
    }

    /// Like [`Horizon::observe`], for a database that lists a transaction only some time after it
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
    fn a_prepared_transaction_that_a_restart_renamed_is_still_watched() {
        let mut horizon = Horizon::default();
        horizon.observe(10, set(&[]));
        horizon.observe(20, set(&["3/44", "4/7"]));
        horizon.observe(30, set(&["-1/759", "3/2"]));
        assert_eq!(horizon.closed_until(), 10, "-1/759 may be 3/44");
        horizon.observe(40, set(&["-1/759"]));
        assert_eq!(horizon.closed_until(), 10);
        horizon.observe(50, set(&["3/9"]));
        assert_eq!(horizon.closed_until(), 20, "3/2 and 3/9 came later than 20");
        horizon.observe(60, set(&[]));
        assert_eq!(horizon.closed_until(), 60);
    }

    #[test]
    fn one_that_was_recovered_before_the_watch_began_keeps_its_name() {
        let mut horizon = Horizon::default();
        horizon.observe(10, set(&["-1/700"]));
        horizon.observe(20, set(&["-1/700", "3/1"]));
        assert_eq!(horizon.closed_until(), 0);
        horizon.observe(30, set(&["3/1"]));
        assert_eq!(horizon.closed_until(), 10, "3/1 came later than 10");
        horizon.observe(40, set(&["3/2", "-1/701"]));
        assert_eq!(horizon.closed_until(), 10, "-1/701 may be 3/1, in a second restart");
        horizon.observe(50, set(&["3/2"]));
        assert_eq!(horizon.closed_until(), 30);
    }

    #[test]
    fn a_recovered_transaction_delays_nothing_that_is_closed() {
        let mut horizon = Horizon::default();
        horizon.observe(10, set(&[]));
        horizon.observe(20, set(&["-1/5"]));
        assert_eq!(horizon.closed_until(), 10);
        horizon.observe(30, set(&["-1/5", "-1/6"]));
        horizon.observe(40, set(&["-1/6"]));
        assert_eq!(horizon.closed_until(), 10, "-1/6 was recovered while 20 was watched");
        horizon.observe(50, set(&[]));
        assert_eq!(horizon.closed_until(), 50);
    }

    #[test]
    fn ids_that_are_given_out_again_are_open_again() {
        let lag = Duration::from_secs(1);
        let (start, mut horizon) = (Instant::now(), Horizon::default());
        horizon.observe_after(lag, start, 10, set(&[]));
        horizon.observe_after(lag, start + lag, 20, set(&["a"]));
        horizon.observe_after(lag, start + 2 * lag, 30, set(&["a"]));
        assert_eq!(horizon.closed_until(), 0, "a was listed with 10");
        horizon.go_back_to(15);
        horizon.observe_after(lag, start + 3 * lag, 16, set(&[]));
        assert_eq!(horizon.closed_until(), 15, "30 is forgotten");
        horizon.go_back_to(12);
        assert_eq!(horizon.closed_until(), 12);
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
