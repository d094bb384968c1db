//! Checks the promises of the relay as events happen.

use std::collections::{BTreeMap, BTreeSet};

use crate::database::{Number, Time};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Name of the promise.
    pub promise: &'static str,
    /// Description of what was observed.
    pub seen: String,
}

/// The checker's knowledge of an event in one outbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) id: i64,
    pub(crate) key: usize,
    /// Number of its commit; `None` while its transaction is open, and after a rollback.
    pub(crate) commit: Option<u64>,
    /// The database itself rolled it back, with everything after a moment in the past.
    pub(crate) taken_back: bool,
    pub(crate) received: u32,
    pub(crate) dead: bool,
    /// Its dead letter was rolled back; the events behind it may be in flight already.
    pub(crate) revived: bool,
    /// The relay registration that received the answer "delivered", if nothing excuses a repeat.
    pub(crate) answered: Option<String>,
    /// Number of repeats that have a cause of their own.
    pub(crate) excuses: u32,
    /// Outages in which a failure was charged to it.
    pub(crate) charged_in: BTreeSet<u64>,
}

impl Known {
    /// Returns whether it is committed, and neither received nor dead.
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
    /// Copies of an event beyond the first.
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
    /// Events of each key, by outbox.
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

    /// Adds to the fingerprint, and to the trace if there is one.
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

    /// Notes that an event arrived at the sink, or as a copy in the outbox of a branch.
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
        // A relay that could read this event could also read the other one.
        let passed = others
            .filter(|other| other.is_due() && other.id < event.id && other.commit < event.commit)
            .map(|other| other.id)
            .min();
        if let Some(passed) = passed {
            let seen = format!("key {}: #{} before #{passed} in {outbox}", event.key, event.id);
            self.violated("events of a key arrive in order", seen);
        }
    }

    /// Notes that the database lost everything after a commit.
    pub(crate) fn taken_back(&mut self, commits: u64) {
        for known in self.known.values_mut() {
            known.taken_back |= known.commit.is_some_and(|commit| commit > commits);
            if known.commit.is_none() {
                known.taken_back = true;
            }
            known.answered = None;
            // Events that were in flight at that time may be repeated.
            known.excuses += 1;
            known.charged_in.clear();
        }
    }
}
