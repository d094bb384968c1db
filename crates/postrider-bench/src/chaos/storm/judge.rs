//! Compares the events that were appended with those that arrived. Pure: notes go in, findings come
//! out.
//!
//! The standard for the order is the promise of `docs/sql-contract.md`: "In `lanes` events of one
//! key arrive in the order of their ids, provided that the transactions which append to that key
//! follow one another. Of two that are open at the same time, the one that commits first may arrive
//! first." So two events of a key are compared if they belong to the same transaction, or if the
//! commit of the one with the smaller id was acknowledged before the transaction of the other
//! began. Of several copies of an event, the first counts; an event that the receiver rejected for
//! good has arrived, too.

use std::collections::{BTreeMap, HashMap, HashSet};

use postrider_store::DeadReason;
use serde::Serialize;

use super::journal::{End, Moment, Notes, Reception};

/// Maximum number of faults that are described; the counts include all.
const EXAMPLES_MAX: usize = 10;

/// The contents of the tables at the end.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// Dead letters, by the id that the row had in the outbox.
    pub(super) dead: HashMap<i64, DeadReason>,
    /// Ids of rows that are still in the outbox.
    pub(super) live: HashSet<i64>,
}

/// The outcomes of the events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Findings {
    /// Events whose commit was acknowledged.
    pub(super) committed: u64,
    /// Events of transactions that were rolled back.
    pub(super) rolled_back: u64,
    /// Events whose commit was not answered: they may or may not have been delivered.
    pub(super) in_doubt: u64,
    /// Different events that the receiver accepted.
    pub(super) delivered: u64,
    /// Committed events that are neither accepted, nor dead letters, nor live.
    pub(super) lost: u64,
    /// Events received before their commit, or without one.
    pub(super) uncommitted: u64,
    /// Events that arrived after a later one of their key.
    pub(super) out_of_order: u64,
    /// Copies after the first one.
    pub(super) duplicates: u64,
    /// Committed events that the receiver always rejects.
    pub(super) poison: u64,
    /// Dead letters.
    pub(super) dead: u64,
    /// Dead letters because relays died repeatedly with only that event in flight: with this number
    /// of kills, that is chance and not a fault.
    pub(super) dead_by_kills: u64,
    /// Dead letters that should have been delivered.
    pub(super) dead_wrongly: u64,
    /// Committed events that are still in the outbox.
    pub(super) pending: u64,
    /// Descriptions of the first few faults.
    pub(super) examples: Vec<String>,
}

impl Findings {
    fn example(&mut self, describe: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(describe());
        }
    }
}

/// An event that arrived, with what the check of the order needs.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    id: i64,
    transaction: usize,
    begun_at: Moment,
    acknowledged_at: Option<Moment>,
}

/// Judges a finished run.
pub(super) fn judge(notes: &Notes, tables: &Tables) -> Findings {
    let mut found = Findings::default();
    let arrivals = receipts(notes, &mut found);
    accounts(notes, tables, &arrivals, &mut found);
    order(notes, &arrivals, &mut found);
    found
}

/// Counts copies and events that arrived too early. Returns the events in the order of their first
/// copy.
fn receipts(notes: &Notes, found: &mut Findings) -> Vec<usize> {
    let mut arrivals = Vec::new();
    let (mut arrived, mut taken) = (HashSet::new(), HashSet::new());
    let mut uncommitted = HashSet::new();
    for receipt in &notes.receipts {
        let Some(event) = notes.events.get(receipt.event) else { continue };
        let too_early = match notes.transactions[event.transaction].end {
            End::Committed { asked_at, .. } => receipt.at < asked_at,
            End::RolledBack | End::Open => true,
            End::InDoubt => false,
        };
        if too_early && uncommitted.insert(receipt.event) {
            found.uncommitted += 1;
            let (id, key) = (event.id, event.key);
            found.example(|| format!("event {id} of key {key} was received without a commit"));
        }
        if receipt.reception == Reception::Taken && !taken.insert(receipt.event) {
            found.duplicates += 1;
        }
        if receipt.reception != Reception::Failed && arrived.insert(receipt.event) {
            arrivals.push(receipt.event);
        }
    }
    found.delivered = taken.len() as u64;
    arrivals
}

/// Determines where each event is at the end.
fn accounts(notes: &Notes, tables: &Tables, arrivals: &[usize], found: &mut Findings) {
    let arrived: HashSet<usize> = arrivals.iter().copied().collect();
    found.dead = tables.dead.len() as u64;
    // Databases may give an id that was rolled back to another event.
    let kept: HashSet<i64> = notes
        .events
        .iter()
        .filter(|event| {
            let end = &notes.transactions[event.transaction].end;
            matches!(end, End::Committed { .. } | End::InDoubt)
        })
        .map(|event| event.id)
        .collect();
    for (number, event) in notes.events.iter().enumerate() {
        let (id, key, reason) = (event.id, event.key, tables.dead.get(&event.id));
        match notes.transactions[event.transaction].end {
            End::Committed { .. } => found.committed += 1,
            End::InDoubt => {
                found.in_doubt += 1;
                continue;
            }
            End::RolledBack | End::Open => {
                found.rolled_back += 1;
                if id > 0 && reason.is_some() && !kept.contains(&id) {
                    found.uncommitted += 1;
                    found.example(|| format!("event {id} is a dead letter without a commit"));
                }
                continue;
            }
        }
        found.poison += u64::from(event.poison);
        match (event.poison, reason) {
            (_, Some(DeadReason::Crash)) => found.dead_by_kills += 1,
            (true, Some(DeadReason::Rejected)) => {}
            (_, Some(reason)) => {
                found.dead_wrongly += 1;
                let reason = reason.as_str();
                found.example(|| format!("event {id} of key {key} is a dead letter ({reason})"));
            }
            (_, None) if tables.live.contains(&id) => found.pending += 1,
            // Poison that arrived was only rejected: it must be a dead letter.
            (false, None) if arrived.contains(&number) => {}
            (_, None) => {
                found.lost += 1;
                found.example(|| format!("event {id} of key {key} is lost"));
            }
        }
    }
}

fn order(notes: &Notes, arrivals: &[usize], found: &mut Findings) {
    // Arrivals so far, by key and id.
    let mut keys: HashMap<u32, BTreeMap<i64, Arrival>> = HashMap::new();
    for number in arrivals {
        let event = &notes.events[*number];
        let transaction = &notes.transactions[event.transaction];
        let acknowledged_at = match transaction.end {
            End::Committed { acknowledged_at, .. } => Some(acknowledged_at),
            End::Open | End::RolledBack | End::InDoubt => None,
        };
        let this = Arrival {
            id: event.id,
            transaction: event.transaction,
            begun_at: transaction.begun_at,
            acknowledged_at,
        };
        let before = keys.entry(event.key).or_default();
        // Those with larger ids that arrived earlier: only a few, if the run is in order.
        let overtaker = before.range(this.id + 1..).map(|(_, later)| later).find(|later| {
            later.transaction == this.transaction
                || this.acknowledged_at.is_some_and(|at| at < later.begun_at)
        });
        if let Some(later) = overtaker {
            found.out_of_order += 1;
            let (id, key, later) = (this.id, event.key, later.id);
            found.example(|| format!("event {id} of key {key} arrived after event {later}"));
        }
        before.insert(this.id, this);
    }
}

/// The judge finds each planted fault, and nothing else.
#[cfg(test)]
mod tests {
    use super::super::journal::{Receipt, Transaction, Written};
    use super::*;

    /// Transactions by number, each with its events; free of faults until one is planted.
    struct Run {
        notes: Notes,
        tables: Tables,
        clock: Moment,
    }

    impl Run {
        fn new() -> Self {
            Self { notes: Notes::default(), tables: Tables::default(), clock: 0 }
        }

        fn tick(&mut self) -> Moment {
            self.clock += 1;
            self.clock
        }

        fn begin(&mut self) -> usize {
            let begun_at = self.tick();
            self.notes.transactions.push(Transaction { begun_at, end: End::Open });
            self.notes.transactions.len() - 1
        }

        fn append(&mut self, transaction: usize, key: u32, poison: bool) -> usize {
            let id = self.notes.events.len() as i64 + 1;
            self.notes.events.push(Written { key, id, transaction, poison });
            self.notes.events.len() - 1
        }

        fn commit(&mut self, transaction: usize) {
            let (asked_at, acknowledged_at) = (self.tick(), self.tick());
            self.notes.transactions[transaction].end = End::Committed { asked_at, acknowledged_at };
        }

        /// Appends an event in its own transaction.
        fn committed(&mut self, key: u32) -> usize {
            let transaction = self.begin();
            let event = self.append(transaction, key, false);
            self.commit(transaction);
            event
        }

        fn poison(&mut self, key: u32) -> usize {
            let transaction = self.begin();
            let event = self.append(transaction, key, true);
            self.commit(transaction);
            event
        }

        fn receive(&mut self, event: usize, reception: Reception) {
            let at = self.tick();
            self.notes.receipts.push(Receipt { at, event, reception });
        }

        fn take(&mut self, event: usize) {
            self.receive(event, Reception::Taken);
        }

        fn judged(&self) -> Findings {
            judge(&self.notes, &self.tables)
        }

        /// Returns the counts of events that are lost, uncommitted, out of order, duplicate and
        /// wrongly dead.
        fn faults(&self) -> [u64; 5] {
            let found = self.judged();
            [
                found.lost,
                found.uncommitted,
                found.out_of_order,
                found.duplicates,
                found.dead_wrongly,
            ]
        }
    }

    const NONE: [u64; 5] = [0; 5];

    #[test]
    fn a_run_without_a_fault_passes() {
        let mut run = Run::new();
        let (a, b, other) = (run.committed(1), run.committed(1), run.committed(2));
        for event in [other, a, b] {
            run.take(event);
        }
        let poison = run.poison(1);
        run.receive(poison, Reception::Rejected);
        run.tables.dead.insert(run.notes.events[poison].id, DeadReason::Rejected);
        let rolled_back = run.begin();
        run.append(rolled_back, 1, false);
        run.notes.transactions[rolled_back].end = End::RolledBack;
        assert_eq!(run.faults(), NONE);
        let found = run.judged();
        assert_eq!((found.committed, found.rolled_back, found.delivered), (4, 1, 3));
        assert_eq!((found.poison, found.dead), (1, 1));
        assert_eq!(found.examples, Vec::<String>::new());
    }

    #[test]
    fn a_lost_event_is_found() {
        let mut run = Run::new();
        let (kept, lost) = (run.committed(1), run.committed(2));
        run.take(kept);
        // A request that failed because of an outage is not a delivery.
        run.receive(lost, Reception::Failed);
        assert_eq!(run.faults(), [1, 0, 0, 0, 0]);
        assert_eq!(run.judged().examples, ["event 2 of key 2 is lost"]);
        run.tables.live.insert(run.notes.events[lost].id);
        assert_eq!(run.faults(), NONE, "it is still in the outbox");
        assert_eq!(run.judged().pending, 1);
    }

    #[test]
    fn poison_that_is_no_dead_letter_is_lost() {
        let mut run = Run::new();
        let poison = run.poison(1);
        run.receive(poison, Reception::Rejected);
        assert_eq!(run.faults(), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn an_uncommitted_event_is_found() {
        let mut run = Run::new();
        let rolled_back = run.begin();
        let event = run.append(rolled_back, 1, false);
        run.notes.transactions[rolled_back].end = End::RolledBack;
        run.take(event);
        run.take(event);
        assert_eq!(run.faults(), [0, 1, 0, 1, 0], "one event, two copies");

        let mut run = Run::new();
        let slow = run.begin();
        let event = run.append(slow, 1, false);
        run.take(event);
        run.commit(slow);
        assert_eq!(run.faults(), [0, 1, 0, 0, 0], "received before the commit was asked for");
    }

    /// SQLite gives the id of an insert that was rolled back to the next insert.
    #[test]
    fn a_dead_letter_belongs_to_the_committed_one_of_two_events_with_its_id() {
        let mut run = Run::new();
        let rolled_back = run.begin();
        let taken_back = run.append(rolled_back, 1, false);
        run.notes.transactions[rolled_back].end = End::RolledBack;
        let id = run.notes.events[taken_back].id;
        run.tables.dead.insert(id, DeadReason::Rejected);
        assert_eq!(run.faults(), [0, 1, 0, 0, 0]);

        let poison = run.poison(2);
        run.notes.events[poison].id = id;
        run.receive(poison, Reception::Rejected);
        assert_eq!(run.faults(), NONE);
    }

    #[test]
    fn an_event_that_arrives_after_a_later_one_is_found() {
        let mut run = Run::new();
        let (a, b, c) = (run.committed(1), run.committed(1), run.committed(1));
        for event in [b, a, c] {
            run.take(event);
        }
        assert_eq!(run.faults(), [0, 0, 1, 0, 0]);
        assert_eq!(run.judged().examples, ["event 1 of key 1 arrived after event 2"]);
    }

    #[test]
    fn the_order_within_a_transaction_is_judged() {
        let mut run = Run::new();
        let transaction = run.begin();
        let (a, b) = (run.append(transaction, 1, false), run.append(transaction, 1, false));
        run.commit(transaction);
        for event in [b, a] {
            run.take(event);
        }
        assert_eq!(run.faults(), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn of_transactions_open_at_the_same_time_either_may_arrive_first() {
        let mut run = Run::new();
        let slow = run.begin();
        let early = run.append(slow, 1, false);
        let overtaking = run.committed(1);
        run.take(overtaking);
        run.commit(slow);
        run.take(early);
        assert_eq!(run.faults(), NONE);
        // An event whose transaction began after the late commit must wait for it.
        let mut run = Run::new();
        let slow = run.begin();
        let early = run.append(slow, 1, false);
        let overtaking = run.committed(1);
        run.commit(slow);
        let after = run.committed(1);
        for event in [overtaking, after, early] {
            run.take(event);
        }
        assert_eq!(run.faults(), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn of_several_copies_the_first_counts_for_the_order() {
        let mut run = Run::new();
        let (a, b) = (run.committed(1), run.committed(1));
        for event in [a, b, a, b, a] {
            run.take(event);
        }
        assert_eq!(run.faults(), [0, 0, 0, 3, 0]);
        // A copy that the receiver did not process does not count.
        let mut run = Run::new();
        let (a, b) = (run.committed(1), run.committed(1));
        run.receive(a, Reception::Failed);
        run.take(b);
        run.take(a);
        assert_eq!(run.faults(), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn events_must_not_pass_poison_that_waits_for_its_rejection() {
        let mut run = Run::new();
        let (poison, after) = (run.poison(1), run.committed(1));
        run.take(after);
        run.receive(poison, Reception::Rejected);
        run.tables.dead.insert(run.notes.events[poison].id, DeadReason::Rejected);
        assert_eq!(run.faults(), [0, 0, 1, 0, 0]);
    }

    #[test]
    fn only_poison_and_what_kills_made_suspect_may_be_dead() {
        let mut run = Run::new();
        let (exhausted, suspect) = (run.committed(1), run.committed(2));
        run.tables.dead.insert(run.notes.events[exhausted].id, DeadReason::Exhausted);
        run.tables.dead.insert(run.notes.events[suspect].id, DeadReason::Crash);
        assert_eq!(run.faults(), [0, 0, 0, 0, 1]);
        assert_eq!((run.judged().dead, run.judged().dead_by_kills), (2, 1));
    }

    #[test]
    fn a_commit_that_was_not_answered_is_neither_required_nor_forbidden() {
        let mut run = Run::new();
        let transaction = run.begin();
        let (a, _b) = (run.append(transaction, 1, false), run.append(transaction, 2, false));
        run.notes.transactions[transaction].end = End::InDoubt;
        run.take(a);
        assert_eq!(run.faults(), NONE);
        assert_eq!(run.judged().in_doubt, 2);
    }
}
