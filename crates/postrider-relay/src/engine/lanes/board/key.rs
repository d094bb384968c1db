//! The board's entries for a row, and for a key that does not flow.

use postrider_store::Key;

use super::KeyHash;
use crate::destination::health::DestinationHash;

/// A row that the owner knows.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: KeyHash,
    pub(super) lane: u8,
    pub(super) bytes: usize,
    /// Hash of the event's identity: after a failover or a restore, another event may have its id.
    pub(super) identity: u32,
    /// Whether it is queued or in flight; otherwise it is a head that waits.
    pub(super) loaded: bool,
    /// The destination that was down when the row was read.
    pub(super) behind: Option<DestinationHash>,
}

/// A key that waits or catches up.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) lane: u8,
    /// The event that waits or is tried again. Without one, the key catches up or is parked.
    pub(super) head: Option<i64>,
    /// No live row of the key has a smaller id, except for those on the board.
    pub(super) from: i64,
    /// Rows up to this id were read while catching up, and may be sent.
    pub(super) open_to: i64,
    /// Number of rows that were passed over.
    pub(super) passed: u64,
    /// Whether a row that was passed over has a smaller id than the head, because it was committed
    /// late.
    pub(super) has_earlier: bool,
    /// Set only if needed: to leave its rows out of reads, and to catch up.
    pub(super) name: Option<Key>,
    /// Whether the store leaves its rows out.
    pub(super) hidden: bool,
    pub(super) parked: Option<Parked>,
}

/// How a key is known to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Parked {
    /// It is in the database; the number is the value of `park_notes` when that became known.
    Noted(u64),
    /// It is about to be written to the database.
    Pending,
}

impl Blocked {
    pub(super) fn new(lane: u8, from: i64) -> Self {
        Self {
            lane,
            head: None,
            from,
            open_to: 0,
            passed: 0,
            has_earlier: false,
            name: None,
            hidden: false,
            parked: None,
        }
    }

    /// Returns whether only its head may be sent.
    pub(super) fn waits(&self) -> bool {
        self.head.is_some() || self.parked.is_some()
    }

    /// Returns whether a row may be sent now: the head, rows before it, and rows that a catch-up
    /// read.
    pub(super) fn lets_pass(&self, id: i64) -> bool {
        self.parked.is_none() && id <= self.head.unwrap_or(self.open_to)
    }

    pub(super) fn pass_over(&mut self, id: i64) {
        self.from = self.from.min(id);
        self.passed += 1;
        self.has_earlier |= self.head.is_some_and(|head| id < head);
        // This matters only if the key is parked: the head is then read again together with the
        // rows behind it.
        self.head = self.head.filter(|head| *head != id);
    }
}
