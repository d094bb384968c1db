//! Random walks: for any sequence of actions of two relays, an application and an operator, the
//! ledger balances and every event is in exactly one place.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_store::{
    Cursor, DeadReason, Delivery, DlqFilter, Event, EventFilter, Lease, OnSuccess, Page, Recovery,
    Status,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::steps::{death, deferral, failure, order};
use crate::TestDb;

/// Number of walks per run, and their length: together some seconds on each store.
const WALKS: u32 = 30;
const STEPS: std::ops::Range<usize> = 20..60;

#[derive(Debug, Clone)]
enum Step {
    Append {
        events: u64,
        commit: bool,
    },
    Claim {
        relay: usize,
        rows: u32,
    },
    ClaimSuspect {
        relay: usize,
    },
    Settle {
        relay: usize,
        how: How,
        events: usize,
        repeat: bool,
    },
    ReleaseLost {
        relay: usize,
    },
    /// The relay dies, is fenced and recovered, and registers again under a new name.
    Crash {
        relay: usize,
    },
    MoveMarked,
    Retry {
        pick: usize,
    },
    Resolve {
        pick: usize,
    },
    Fold {
        chunk: u32,
    },
}

#[derive(Debug, Clone, Copy)]
enum How {
    Delivered,
    Archived,
    Failed,
    Dead,
    Marked,
    Released,
}

fn step() -> impl Strategy<Value = Step> {
    let relay = 0..2_usize;
    let how = prop_oneof![
        Just(How::Delivered),
        Just(How::Archived),
        Just(How::Failed),
        Just(How::Dead),
        Just(How::Marked),
        Just(How::Released),
    ];
    prop_oneof![
        4 => (1..5_u64, prop::bool::weighted(0.8))
            .prop_map(|(events, commit)| Step::Append { events, commit }),
        6 => (relay.clone(), 1..6_u32).prop_map(|(relay, rows)| Step::Claim { relay, rows }),
        1 => relay.clone().prop_map(|relay| Step::ClaimSuspect { relay }),
        8 => (relay.clone(), how, 1..4_usize, prop::bool::weighted(0.2))
            .prop_map(|(relay, how, events, repeat)| Step::Settle { relay, how, events, repeat }),
        1 => relay.clone().prop_map(|relay| Step::ReleaseLost { relay }),
        2 => relay.prop_map(|relay| Step::Crash { relay }),
        1 => Just(Step::MoveMarked),
        1 => any::<usize>().prop_map(|pick| Step::Retry { pick }),
        1 => any::<usize>().prop_map(|pick| Step::Resolve { pick }),
        1 => (1..5_u32).prop_map(|chunk| Step::Fold { chunk }),
    ]
}

/// The ledger balances after every step; at the end every event is live, delivered or a dead
/// letter.
#[expect(clippy::unused_async, reason = "a case is async; the walks run inside proptest's loop")]
pub async fn the_ledger_balances_through_random_walks(db: TestDb) {
    let config = Config {
        cases: WALKS,
        failure_persistence: None,
        max_shrink_iters: 50,
        ..Config::default()
    };
    let runtime = tokio::runtime::Handle::current();
    let walks = tokio::task::block_in_place(|| {
        TestRunner::new(config).run(&prop::collection::vec(step(), STEPS), |steps| {
            runtime.block_on(async {
                let mut walk = Walk::begin(db.clone()).await;
                for step in steps {
                    walk.take(step).await;
                    walk.db.assert_balanced().await;
                }
                walk.check().await;
                walk.drain().await;
            });
            Ok(())
        })
    });
    if let Err(failure) = walks {
        panic!("{failure}");
    }
}

struct Relay {
    lease: Lease,
    cursor: Cursor,
    held: Vec<Event>,
}

/// The expected state, tracked outside the database.
struct Walk {
    db: TestDb,
    relays: [Relay; 2],
    appended: BTreeSet<i64>,
    delivered: BTreeSet<i64>,
    /// Unresolved dead letters.
    unresolved: BTreeSet<i64>,
}

impl Walk {
    /// Empties the tables; creating new ones would take longer than the walk.
    async fn begin(db: TestDb) -> Self {
        let table = db.outbox.table();
        for suffix in ["", "_keys", "_archive", "_dlq", "_attempts", "_ledger"] {
            db.execute(&format!("DELETE FROM {table}{suffix}")).await;
        }
        if db.store.capabilities().concurrent_writers {
            db.execute(&format!("DELETE FROM {table}_ledger_entries")).await;
        }
        db.execute("DELETE FROM postrider_relays").await;
        let relays = [Self::register(&db).await, Self::register(&db).await];
        let (appended, delivered) = Default::default();
        Self { db, relays, appended, delivered, unresolved: BTreeSet::new() }
    }

    async fn register(db: &TestDb) -> Relay {
        let lease = db.relay(&format!("relay-{}", db.next_number())).await;
        Relay { lease, cursor: Cursor::new(), held: Vec::new() }
    }

    async fn take(&mut self, step: Step) {
        let store = self.db.store.clone();
        let outbox = self.db.outbox.clone();
        match step {
            Step::Append { events, commit } => self.append(events, commit).await,
            Step::Claim { relay, rows } => {
                let Relay { lease, cursor, .. } = &mut self.relays[relay];
                let claimed = self.db.claim_on(lease, rows, cursor).await;
                assert!(claimed.len() <= rows as usize);
                claimed.into_iter().for_each(|event| self.hold(relay, event));
            }
            Step::ClaimSuspect { relay } => {
                let lease = &self.relays[relay].lease;
                let suspect = store.claim_suspect(&outbox, lease).await.unwrap();
                suspect.into_iter().for_each(|event| self.hold(relay, event));
            }
            Step::Settle { relay, how, events, repeat } => {
                let held = &mut self.relays[relay].held;
                let events: Vec<_> = held.drain(..events.min(held.len())).collect();
                self.settle(relay, how, &events, repeat).await;
            }
            Step::ReleaseLost { relay } => {
                // Forgets the first event that it holds: a claim whose answer was partly lost.
                let Relay { lease, held, .. } = &mut self.relays[relay];
                let lost = usize::from(!held.is_empty());
                held.drain(..lost);
                let in_flight: Vec<_> = held.iter().map(|event| event.id).collect();
                let released = store.release_lost(&outbox, lease, &in_flight).await.unwrap();
                assert_eq!(released, lost as u64);
            }
            Step::Crash { relay } => self.crash(relay).await,
            Step::MoveMarked => {
                store.move_marked(&outbox, 3).await.unwrap();
                self.look_for_dead_letters().await;
            }
            Step::Retry { pick } => {
                let Some(letter) = self.pick(pick) else { return };
                let fresh = store.retry(&outbox, letter, "walker", "").await.unwrap();
                assert!(self.appended.insert(fresh), "a fresh row");
            }
            Step::Resolve { pick } => {
                let Some(letter) = self.pick(pick) else { return };
                store.resolve(&outbox, letter, "walker", "").await.unwrap();
            }
            Step::Fold { chunk } => drop(store.fold_ledger(&outbox, chunk).await.unwrap()),
        }
    }

    async fn append(&mut self, events: u64, commit: bool) {
        let mut tx = self.db.begin().await;
        let events: Vec<_> = (0..events).map(|_| order(self.db.next_number())).collect();
        let answers = tx.append_all(&self.db.outbox, &events).await.unwrap();
        if commit {
            tx.commit().await.unwrap();
            self.appended.extend(answers.iter().map(postrider::Appended::id));
        } else {
            tx.rollback().await.unwrap();
        }
    }

    /// Notes that a relay holds an event. No event is ever held by two relays.
    fn hold(&mut self, relay: usize, event: Event) {
        for other in &self.relays {
            let twice = other.held.iter().any(|held| held.id == event.id);
            assert!(!twice, "{} is held by {} already", event.id, other.lease.relay_id);
        }
        assert!(self.appended.contains(&event.id) && !self.delivered.contains(&event.id));
        self.relays[relay].held.push(event);
    }

    async fn settle(&mut self, relay: usize, how: How, events: &[Event], repeat: bool) {
        let (store, outbox, lease) = (&self.db.store, &self.db.outbox, &self.relays[relay].lease);
        let deliveries: Vec<_> = events.iter().map(Delivery::from).collect();
        let failures: Vec<_> = events.iter().map(|e| failure(e, Duration::ZERO, "no")).collect();
        let deaths: Vec<_> = events.iter().map(|e| death(e, DeadReason::Rejected, "no")).collect();
        let deferrals: Vec<_> = events.iter().map(|e| deferral(e, Duration::ZERO)).collect();
        for changed in [events.len(), 0].into_iter().take(1 + usize::from(repeat)) {
            let answer = match how {
                How::Delivered => {
                    store.settle_delivered(outbox, lease, &deliveries, OnSuccess::Delete).await
                }
                How::Archived => {
                    store.settle_delivered(outbox, lease, &deliveries, OnSuccess::Archive).await
                }
                How::Failed => store.settle_failed(outbox, lease, &failures).await,
                How::Dead => store.settle_dead(outbox, lease, &deaths).await,
                How::Marked => store.mark_dead(outbox, lease, &deaths).await,
                How::Released => store.release(outbox, lease, &deferrals).await,
            };
            assert_eq!(answer.unwrap().rows, changed as u64, "{how:?}, repeats change nothing");
        }
        if matches!(how, How::Delivered | How::Archived) {
            self.delivered.extend(events.iter().map(|event| event.id));
        }
        self.look_for_dead_letters().await;
    }

    async fn crash(&mut self, relay: usize) {
        let fresh = Self::register(&self.db).await;
        let dead = std::mem::replace(&mut self.relays[relay], fresh);
        let observer = &self.relays[1 - relay].lease;
        self.db.fence(observer, &dead.lease).await;
        let live: Vec<_> = self.relays.iter().map(|r| r.lease.relay_id.clone()).collect();
        let recovery = Recovery {
            dead: std::slice::from_ref(&dead.lease.relay_id),
            live: &live,
            stalled_after: Duration::from_secs(300),
        };
        let recovered = self.db.store.recover(&self.db.outbox, &recovery).await.unwrap();
        assert_eq!(recovered, dead.held.len() as u64, "all that it held, and nothing else");
        self.db.store.remove_relay(&dead.lease.relay_id).await.unwrap();
    }

    fn pick(&mut self, pick: usize) -> Option<i64> {
        let letter = self.unresolved.iter().nth(pick % self.unresolved.len().max(1)).copied()?;
        self.unresolved.remove(&letter);
        Some(letter)
    }

    async fn look_for_dead_letters(&mut self) {
        let open = DlqFilter { resolved: Some(false), ..DlqFilter::default() };
        let page = Page::first(10_000).within(Duration::MAX);
        let letters = self.db.store.dead_letters(&self.db.outbox, &open, page).await.unwrap().rows;
        self.unresolved = letters.iter().map(|letter| letter.id).collect();
    }

    /// Checks that every appended event is exactly one of live, delivered and a dead letter.
    async fn check(&self) {
        let (store, outbox) = (&self.db.store, &self.db.outbox);
        let page = Page::first(10_000).within(Duration::MAX);
        let live = store.events(outbox, &EventFilter::default(), page).await.unwrap().rows;
        let dead = store.dead_letters(outbox, &DlqFilter::default(), page).await.unwrap().rows;
        let archived = EventFilter { status: Some(Status::Completed), ..EventFilter::default() };
        let archived = store.events(outbox, &archived, page).await.unwrap().rows;
        assert!(archived.iter().all(|event| self.delivered.contains(&event.id)));

        let mut places: BTreeMap<i64, usize> = self.appended.iter().map(|id| (*id, 0)).collect();
        let found = live.iter().map(|event| event.id);
        let found = found.chain(dead.iter().map(|letter| letter.original_id));
        for id in found.chain(self.delivered.iter().copied()) {
            *places.get_mut(&id).expect("an event that was never appended") += 1;
        }
        places.retain(|_, count| *count != 1);
        assert!(places.is_empty(), "events that are lost (0) or doubled: {places:?}");

        let held: BTreeSet<_> =
            live.iter().filter(|e| e.locked_by.is_some()).map(|e| e.id).collect();
        let believed = self.relays.iter().flat_map(|relay| relay.held.iter().map(|e| e.id));
        assert_eq!(held, believed.collect(), "the table and the relays agree on who holds what");
        let ledger = store.statistics(outbox).await.unwrap();
        let counted = |count: i64| usize::try_from(count).unwrap();
        assert_eq!(counted(ledger.appended), self.appended.len());
        assert_eq!(counted(ledger.delivered), self.delivered.len());
        assert_eq!(counted(ledger.dead), dead.len());
        assert_eq!(counted(ledger.pending), live.len());
    }

    /// Checks that nothing is stuck: after both relays are gone, a third one gets all that is left.
    async fn drain(mut self) {
        for relay in 0..2 {
            self.crash(relay).await;
        }
        // Suspects wait after a crash.
        let waits = "next_retry_at IS NOT NULL";
        self.db.age(self.db.outbox.table(), "next_retry_at", Duration::from_secs(60), waits).await;
        let store = self.db.store.clone();
        let mut last = Self::register(&self.db).await;
        loop {
            let mut events = self.db.claim_on(&last.lease, 3, &mut last.cursor).await;
            events.extend(store.claim_suspect(&self.db.outbox, &last.lease).await.unwrap());
            if events.is_empty() {
                break;
            }
            self.db.deliver(&last.lease, &events, OnSuccess::Delete).await;
        }
        store.move_marked(&self.db.outbox, 10_000).await.unwrap();
        assert_eq!(self.db.count("").await, 0, "everything ended delivered or as a dead letter");
        self.db.assert_balanced().await;
    }
}
