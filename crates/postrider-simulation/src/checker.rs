//! The promises, checked as things happen.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::{Number, Time};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: &'static str,
    /// What was seen.
    pub seen: String,
}

/// What is known of an event in one outbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) id: i64,
    pub(crate) key: usize,
    /// The number of its commit; `None` while its transaction is open, and after a rollback.
    pub(crate) commit: Option<u64>,
    /// Taken back by the database itself, with everything after a moment in the past.
    pub(crate) taken_back: bool,
    pub(crate) received: u32,
    pub(crate) dead: bool,
    /// Its dead letter was taken back: what followed it may be on its way already.
    pub(crate) revived: bool,
    /// Who got the answer that it was delivered: the registration, if nothing excuses a repeat.
    pub(crate) answered: Option<String>,
    /// Repeats that have a cause of their own.
    pub(crate) excuses: u32,
    /// Outages in which a failure was charged to it.
    pub(crate) charged_in: BTreeSet<u64>,
}

impl Known {
    /// Committed, and neither received nor dead.
    fn is_due(&self) -> bool {
        let gone = self.taken_back || self.dead || self.revived;
        self.commit.is_some() && self.received == 0 && !gone
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were committed.
    pub committed: u64,
    /// Events that arrived, each counted once.
    pub delivered: u64,
    /// Copies beyond the first.
    pub duplicates: u64,
    /// Dead letters.
    pub dead: u64,
    /// Relays that were killed.
    pub kills: u64,
    /// Hash of everything that happened.
    pub fingerprint: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    pub(crate) known: BTreeMap<(String, Number), Known>,
    /// Events of a key, by outbox.
    pub(crate) of_key: BTreeMap<(String, usize), Vec<Number>>,
    pub(crate) keeps_order: bool,
    pub(crate) violation: Option<Violation>,
    pub(crate) counts: Counts,
    pub(crate) trace: Option<Vec<String>>,
}

impl Checker {
    pub(crate) fn violated(&mut self, promise: &'static str, seen: String) {
        self.note(Time::ZERO, || format!("VIOLATION {promise}: {seen}"));
        self.violation.get_or_insert(Violation { promise, seen });
    }

    /// Part of the fingerprint, and of the trace where one is kept.
    pub(crate) fn note(&mut self, now: Time, what: impl FnOnce() -> String) {
        let what = what();
        for byte in what.bytes() {
            let mixed = self.counts.fingerprint ^ u64::from(byte);
            self.counts.fingerprint = mixed.wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:9.3} {what}", now.as_secs_f64()));
        }
    }

    pub(crate) fn inserted(&mut self, outbox: &str, number: Number, key: usize, id: i64) {
        let before = self.known.remove(&(outbox.to_owned(), number)).unwrap_or_default();
        let known = Known { id, key, commit: None, taken_back: false, ..before };
        self.known.insert((outbox.to_owned(), number), known);
        let of_key = self.of_key.entry((outbox.to_owned(), key)).or_default();
        if !of_key.contains(&number) {
            of_key.push(number);
        }
    }

    pub(crate) fn known(&mut self, outbox: &str, number: Number) -> &mut Known {
        self.known.entry((outbox.to_owned(), number)).or_default()
    }

    /// An event arrives: at the sink, or as a copy in the outbox of a branch.
    pub(crate) fn received(&mut self, now: Time, outbox: &str, number: Number) {
        let event = self.known(outbox, number).clone();
        let nth = event.received + 1;
        self.note(now, || format!("received {outbox} #{} copy {nth}", event.id));
        if event.commit.is_none() {
            let seen = format!("event #{} was never committed", event.id);
            self.violated("only what was committed is delivered", seen);
        }
        if event.received == 0 {
            self.check_order(outbox, &event);
        }
        let known = self.known(outbox, number);
        known.received += 1;
    }

    fn check_order(&mut self, outbox: &str, event: &Known) {
        if !self.keeps_order || event.taken_back {
            return;
        }
        let of_key = self.of_key.get(&(outbox.to_owned(), event.key)).into_iter().flatten();
        let others = of_key.filter_map(|other| self.known.get(&(outbox.to_owned(), *other)));
        // Whoever could read this event could read the other one.
        let passed = others
            .filter(|other| other.is_due() && other.id < event.id && other.commit < event.commit)
            .map(|other| other.id)
            .min();
        if let Some(passed) = passed {
            let seen = format!("key {}: #{} before #{passed} in {outbox}", event.key, event.id);
            self.violated("events of a key arrive in order", seen);
        }
    }

    /// The database forgot everything after a commit.
    pub(crate) fn taken_back(&mut self, commits: u64) {
        for known in self.known.values_mut() {
            known.taken_back |= known.commit.is_some_and(|commit| commit > commits);
            if known.commit.is_none() {
                known.taken_back = true;
            }
            known.answered = None;
            // What was under way then may come again.
            known.excuses += 1;
            known.charged_in.clear();
        }
    }
}
