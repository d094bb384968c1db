//! Callers that go away in the middle of a call: a client that hangs up, a timeout, a stop.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use postrider::store::{Cursor, PauseKind};
use postrider::{ConnectOptions, connect};

use super::steps::rows;
use crate::TestDb;

/// More than any of these calls needs.
const POLLS_MAX: usize = 500;

/// Polls a call so many times at most, and drops it. `None`: it was not ready.
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

/// A transaction that stayed open on a session would take in what the next caller writes on it, and the
/// database would forget that with the session.
pub async fn a_caller_that_goes_away_leaves_no_transaction_open(db: TestDb) {
    let options = ConnectOptions { connections_max: 2, create: false };
    let store = connect(&db.url, &options).await.unwrap();
    let relay = db.relay("relay-a").await;
    db.append_orders(10).await;
    let mut said = 0;
    let mut beats_are_seen = async |call: &str, polls: usize| {
        // On each session, whichever is taken first.
        for _ in 0..4 {
            store.heartbeat(&relay, &[]).await.unwrap();
            said += 1;
            let sql = "SELECT heartbeat FROM postrider_relays WHERE id = 'relay-a'";
            let seen = db.integer(sql).await;
            assert_eq!(seen, said, "not committed after {polls} polls of {call}");
        }
    };
    // Which session a call gets differs: several times through all of them.
    let (mut polls, mut rounds) = (1, 0);
    while rounds < 3 {
        // Each call first to its end: what was left before may have cost the session, and a new one
        // takes many polls.
        let mut cursors = [Cursor::new(), Cursor::new()];
        let [whole, cut] =
            cursors.each_mut().map(|cursor| store.claim(&db.outbox, &relay, rows(1), cursor));
        whole.await.unwrap();
        let claimed = abandoned(cut, polls).await.is_some();
        beats_are_seen("claim", polls).await;

        let pause = || store.pause(PauseKind::Outbox, db.outbox.name(), "anna", "");
        pause().await.unwrap();
        let paused = abandoned(pause(), polls).await.is_some();
        beats_are_seen("pause", polls).await;

        let move_marked = || store.move_marked(&db.outbox, 10);
        move_marked().await.unwrap();
        let moved = abandoned(move_marked(), polls).await.is_some();
        beats_are_seen("move_marked", polls).await;

        let ended = claimed && paused && moved;
        (polls, rounds) = if ended { (1, rounds + 1) } else { (polls + 1, rounds) };
        assert!(polls < POLLS_MAX, "calls that never end");
    }
}
