//! Callers that are dropped in the middle of a call: a disconnected client, a timeout, a stop.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use postrider_store::{
    ConnectOptions, Cursor, Database, Delivery, Lease, OnSuccess, PauseKind, connect,
};

use super::steps::rows;
use crate::TestDb;

/// More polls than any of these calls needs.
const POLLS_MAX: usize = 500;

/// Polls a call at most this many times, and drops it. `None` if it was not ready.
async fn abandoned<F: Future>(call: F, polls: usize) -> Option<F::Output> {
    let (mut call, mut polled) = (pin!(call), 0);
    poll_fn(|context| {
        polled += 1;
        match call.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if polled == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Heartbeats through a store whose callers were dropped, each a single statement.
struct Beats<'a> {
    db: &'a TestDb,
    store: &'a dyn Database,
    relay: &'a Lease,
    said: i64,
}

impl Beats<'_> {
    /// Checks each session, whichever is taken first: others see every heartbeat that succeeded.
    async fn are_seen(&mut self, call: &str, polls: usize) {
        for _ in 0..4 {
            self.store.heartbeat(self.relay, &[]).await.unwrap();
            self.said += 1;
            let sql = "SELECT heartbeat FROM postrider_relays WHERE id = 'relay-a'";
            let seen = self.db.integer(sql).await;
            assert_eq!(seen, self.said, "not committed after {polls} polls of {call}");
        }
    }
}

/// If a transaction stayed open on a session, it would include the next caller's writes, and the
/// database would lose them with the session.
pub async fn a_caller_that_goes_away_leaves_no_transaction_open(db: TestDb) {
    let options = ConnectOptions { connections_max: 2, create: false };
    let store = connect(&db.url, &options).await.unwrap();
    let relay = db.relay("relay-a").await;
    db.append_orders(10).await;
    let mut beats = Beats { db: &db, store: store.as_ref(), relay: &relay, said: 0 };
    // Calls get different sessions, so each number of polls is repeated several times.
    let (mut polls, mut rounds) = (1, 0);
    while rounds < 3 {
        // Each call first runs to its end: an earlier dropped call may have cost the session, and
        // opening a new one takes many polls.
        let mut cursors = [Cursor::new(), Cursor::new()];
        let [whole, cut] =
            cursors.each_mut().map(|cursor| store.claim(&db.outbox, &relay, rows(1), cursor));
        whole.await.unwrap();
        let claimed = abandoned(cut, polls).await.is_some();
        beats.are_seen("claim", polls).await;

        let pause = || store.pause(PauseKind::Outbox, db.outbox.name(), "anna", "");
        pause().await.unwrap();
        let paused = abandoned(pause(), polls).await.is_some();
        beats.are_seen("pause", polls).await;

        let move_marked = || store.move_marked(&db.outbox, 10);
        move_marked().await.unwrap();
        let moved = abandoned(move_marked(), polls).await.is_some();
        beats.are_seen("move_marked", polls).await;

        let ended = claimed && paused && moved;
        (polls, rounds) = if ended { (1, rounds + 1) } else { (polls + 1, rounds) };
        assert!(polls < POLLS_MAX, "calls that never end");
    }
}

/// The same on the only session, with enough rows for the fast path of a settle.
pub async fn a_settle_that_is_left_halfway_leaves_no_transaction_open(db: TestDb) {
    let options = ConnectOptions { connections_max: 1, create: false };
    let store = connect(&db.url, &options).await.unwrap();
    let relay = db.relay("relay-a").await;
    let mut beats = Beats { db: &db, store: store.as_ref(), relay: &relay, said: 0 };
    for polls in 1..POLLS_MAX {
        db.append_orders(120).await;
        let claimed = db.claim(&relay, 120).await;
        let delivered: Vec<Delivery> = claimed.iter().map(Delivery::from).collect();
        let settle = store.settle_delivered(&db.outbox, &relay, &delivered, OnSuccess::Delete);
        let ended = abandoned(settle, polls).await.is_some();
        beats.are_seen("settle_delivered", polls).await;
        db.assert_balanced().await;
        if ended {
            return;
        }
    }
    panic!("a settle that never ends");
}
