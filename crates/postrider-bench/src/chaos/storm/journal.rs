//! Notes of the writers and the receiver: the input of the judge.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Microseconds since the start of the run.
pub(super) type Moment = u64;

/// One event that a writer appended. Its number is its index in the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    pub(super) key: u32,
    /// Row id; 0 until the database has answered.
    pub(super) id: i64,
    /// Index of its transaction in the list of transactions.
    pub(super) transaction: usize,
    /// Whether the receiver always rejects it.
    pub(super) poison: bool,
}

/// One transaction of a writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transaction {
    /// When the transaction began, taken before the database is called.
    pub(super) begun_at: Moment,
    pub(super) end: End,
}

/// How a transaction ended, as far as its writer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Still open.
    Open,
    Committed {
        /// When the commit was requested, taken before the database is called.
        asked_at: Moment,
        /// When the commit was acknowledged, taken after the database has answered.
        acknowledged_at: Moment,
    },
    RolledBack,
    /// The database did not answer the commit: it may have happened.
    InDoubt,
}

/// The receiver's reaction to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reception {
    /// It accepted the event, whether or not its answer arrived.
    Taken,
    /// It rejected the event for good.
    Rejected,
    /// It did not process the request: an outage, as the relay sees it.
    Failed,
}

/// One request, in order of arrival.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receipt {
    pub(super) at: Moment,
    /// Number of the event.
    pub(super) event: usize,
    pub(super) reception: Reception,
}

/// All notes of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Notes {
    pub(super) events: Vec<Written>,
    pub(super) transactions: Vec<Transaction>,
    pub(super) receipts: Vec<Receipt>,
}

/// The notes of a run in progress.
#[derive(Debug)]
pub(super) struct Journal {
    started: Instant,
    notes: Mutex<Notes>,
    /// Whether each event was accepted, by number; `taken_count` is the number of accepted events.
    taken: Mutex<Vec<bool>>,
    taken_count: AtomicU64,
}

impl Journal {
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            notes: Mutex::default(),
            taken: Mutex::default(),
            taken_count: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> Moment {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Records a transaction that is about to begin.
    pub(super) fn begin(&self) -> usize {
        let begun_at = self.now();
        let mut notes = self.notes();
        notes.transactions.push(Transaction { begun_at, end: End::Open });
        notes.transactions.len() - 1
    }

    /// Records an event that is about to be appended. Returns its number.
    pub(super) fn draft(&self, key: u32, transaction: usize, poison: bool) -> usize {
        let mut notes = self.notes();
        notes.events.push(Written { key, id: 0, transaction, poison });
        notes.events.len() - 1
    }

    pub(super) fn appended(&self, event: usize, id: i64) {
        self.notes().events[event].id = id;
    }

    pub(super) fn ended(&self, transaction: usize, end: End) {
        self.notes().transactions[transaction].end = end;
    }

    pub(super) fn received(&self, event: usize, reception: Reception) {
        let at = self.now();
        self.notes().receipts.push(Receipt { at, event, reception });
        if reception == Reception::Taken {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            if taken.len() <= event {
                taken.resize(event + 1, false);
            }
            if !std::mem::replace(&mut taken[event], true) {
                self.taken_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether the event is poison; `None` if there is no such event.
    pub(super) fn poison(&self, event: usize) -> Option<bool> {
        self.notes().events.get(event).map(|written| written.poison)
    }

    /// Returns the number of different events accepted so far.
    pub(super) fn delivered(&self) -> u64 {
        self.taken_count.load(Ordering::Relaxed)
    }

    pub(super) fn copy(&self) -> Notes {
        self.notes().clone()
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
