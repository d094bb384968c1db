//! Broken networks between a relay, or an application, and its database.
//!
//! For stores that are reached over a network: `store_faults!`. SQLite is a file in the same
//! process; its answers cannot be lost.

use std::time::Duration;

use postrider::{Inbox, Incoming, Received};
use postrider_store::{ConnectOptions, Cursor, OnSuccess, StoreError, StoreKind, connect};

use super::jobs::retry_all;
use super::steps::{failure, ids, order, rows};
use crate::{FaultProxy, TestDb, eventually};

/// A database, and the same one through a proxy with a single connection, so that each request uses
/// the connection that the test has prepared.
struct Behind {
    proxy: FaultProxy,
    /// The real database, for the test's own queries.
    direct: TestDb,
    /// What the relay or application under test uses.
    through: TestDb,
}

async fn behind_a_proxy(db: TestDb) -> Behind {
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let options = ConnectOptions { connections_max: 1, create: false };
    let store = connect(&url, &options).await.unwrap();
    let through = db.reached_by(store, &url).await;
    Behind { proxy, direct: db, through }
}

/// Returns bytes of the request with which a call of "relay-under-test" takes effect: its only one,
/// or the end of its transaction. Losing an earlier answer would only roll back.
fn deciding_request(db: &TestDb) -> &'static [u8] {
    match db.store.kind() {
        StoreKind::Mysql => b"COMMIT",
        StoreKind::Postgres | StoreKind::Sqlite => b"relay-under-test",
    }
}

/// The database settled, but the relay did not receive the answer: it repeats, and the ledger
/// balances.
pub async fn a_settle_whose_answer_is_lost_can_be_repeated(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    direct.append_orders(3).await;
    let relay = direct.relay("relay-under-test").await;
    let claimed = through.claim(&relay, 3).await;
    // The first settle prepares the statement, so that the next one is a single request.
    assert_eq!(through.deliver(&relay, &claimed[..1], OnSuccess::Archive).await, 1);
    let rest: Vec<_> = claimed[1..].iter().map(Into::into).collect();

    proxy.lose_answer_to(deciding_request(&direct));
    let unheard =
        through.store.settle_delivered(&through.outbox, &relay, &rest, OnSuccess::Archive).await;
    assert!(matches!(unheard, Err(StoreError::Unavailable(_))), "{unheard:?}");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(direct.count("").await, 0, "the database did it");

    assert_eq!(through.deliver(&relay, &claimed[1..], OnSuccess::Archive).await, 0, "once only");
    assert_eq!(direct.count("_archive").await, 3);
    assert_eq!(direct.store.statistics(&direct.outbox).await.unwrap().delivered, 3);
    direct.assert_balanced().await;
}

/// The same for a failure: the attempt is spent and recorded once.
pub async fn a_failure_whose_answer_is_lost_is_spent_once(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let id = direct.append_orders(1).await[0];
    let relay = direct.relay("relay-under-test").await;
    let mut cursor = Cursor::new();
    let claimed = through.claim_on(&relay, 3, &mut cursor).await;
    let first = [failure(&claimed[0], Duration::ZERO, "no")];
    through.store.settle_failed(&through.outbox, &relay, &first).await.unwrap();
    let claimed = through.claim_on(&relay, 3, &mut cursor).await;
    let second = [failure(&claimed[0], Duration::ZERO, "no")];

    proxy.lose_answer_to(deciding_request(&direct));
    assert!(through.store.settle_failed(&through.outbox, &relay, &second).await.is_err());
    let repeated = through.store.settle_failed(&through.outbox, &relay, &second).await.unwrap();

    assert_eq!(repeated.rows, 0);
    assert_eq!(direct.event(id).await.unwrap().retry_count, 2);
    assert_eq!(direct.count("_attempts").await, 2);
    direct.assert_balanced().await;
}

/// A claim whose answer was lost holds rows that the relay does not know, until they are released.
pub async fn a_claim_whose_answer_is_lost_is_given_back(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let appended = direct.append_orders(4).await;
    let relay = direct.relay("relay-under-test").await;
    let mut cursor = Cursor::new();
    let in_flight = ids(&through.claim_on(&relay, 2, &mut cursor).await);

    proxy.lose_answer_to(deciding_request(&direct));
    let unheard = through.store.claim(&through.outbox, &relay, rows(2), &mut cursor).await;
    assert!(matches!(unheard, Err(StoreError::Unavailable(_))), "{unheard:?}");
    let held = direct.event(appended[3]).await.unwrap().locked_by;
    assert_eq!(held.as_deref(), Some("relay-under-test"), "the database did it");

    let lost = through.store.release_lost(&through.outbox, &relay, &in_flight).await.unwrap();
    assert_eq!(lost, 2);
    let again = through.claim_on(&relay, 10, &mut cursor).await;
    assert_eq!(ids(&again), appended[2..], "by the same cursor");
}

/// The dropped answer must not cost the pool its only session forever, nor affect the next caller's
/// reads and writes.
pub async fn a_caller_that_leaves_an_answer_halfway_costs_the_next_one_nothing(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let relay = direct.relay("relay-under-test").await;
    let beat = || through.store.heartbeat(&relay, &[]);
    let beats = "SELECT heartbeat FROM postrider_relays";
    for bytes in [1, 5, 9, 14, 20, 30, 50, 80, 120, 200, 300] {
        proxy.hold_answers_after(bytes);
        let left = tokio::time::timeout(Duration::from_millis(60), beat()).await;
        assert!(left.is_err() || bytes >= 200, "{bytes} bytes are not all of the answers");
        proxy.pass();
        beat().await.unwrap_or_else(|error| panic!("after {bytes} bytes: {error}"));
        let before = direct.integer(beats).await;
        let pulses = beat().await.unwrap_or_else(|error| panic!("after {bytes} bytes: {error}"));
        assert_eq!(direct.integer(beats).await, before + 1, "after {bytes} bytes");
        assert_eq!(pulses[0].heartbeat, before + 1, "after {bytes} bytes");
    }
}

/// The application's COMMIT succeeded, but the answer was lost: repeating with the same request id
/// finds the first event instead of appending a second.
pub async fn an_append_whose_commit_answer_is_lost_is_recognised(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let mut tx = through.begin().await;
    let id = tx.append(&through.outbox, &order(1).request_id("r")).await.unwrap().id();
    proxy.lose_answer_to(b"COMMIT");
    tx.commit().await.expect_err("the answer was lost");
    assert_eq!(proxy.answers_lost(), 1);

    let mut tx = through.begin().await;
    let again = tx.append(&through.outbox, &order(1).request_id("r")).await.unwrap();
    tx.commit().await.unwrap();
    assert!(again.is_duplicate());
    assert_eq!(again.id(), id);
    assert_eq!(direct.count("").await, 1);
    direct.assert_balanced().await;
}

/// A transaction whose connection broke before its COMMIT is rolled back.
pub async fn an_append_cut_off_before_its_commit_never_happened(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let mut tx = through.begin().await;
    let _ = tx.append(&through.outbox, &order(1).request_id("r")).await.unwrap();
    proxy.cut();
    tx.commit().await.expect_err("the connection is gone");
    proxy.pass();
    // The second one waits until the server notices that the first one's client is gone.
    let mut tx = through.begin().await;
    assert!(!tx.append(&through.outbox, &order(1).request_id("r")).await.unwrap().is_duplicate());
    tx.commit().await.unwrap();
    assert_eq!(direct.count("").await, 1);
    direct.assert_balanced().await;
}

/// The consumer's COMMIT succeeded, but the answer was lost: the repeated event is ignored.
pub async fn an_event_received_with_a_lost_commit_answer_is_ignored_when_it_comes_again(
    db: TestDb,
) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    direct.execute("CREATE TABLE effects (event_id varchar(100))").await;
    let (inbox, event) = (Inbox::new("fraud").unwrap(), Incoming::new("e-1"));
    let mut tx = through.begin().await;
    assert!(tx.receive(&inbox, &event).await.unwrap().is_new());
    tx.execute("INSERT INTO effects VALUES ('e-1')").await.unwrap();
    proxy.lose_answer_to(b"COMMIT");
    tx.commit().await.expect_err("the answer was lost");
    assert_eq!(proxy.answers_lost(), 1);

    let mut tx = through.begin().await;
    assert_eq!(tx.receive(&inbox, &event).await.unwrap(), Received::Duplicate);
    tx.commit().await.unwrap();
    assert_eq!(direct.integer("SELECT count(*) FROM effects").await, 1);
    let ledgers = direct.store.consumer_ledgers().await.unwrap();
    assert_eq!((ledgers[0].received, ledgers[0].applied, ledgers[0].ignored), (2, 1, 1));
    assert!(ledgers[0].balanced());
}

/// While the database cannot be reached, calls fail as transient; then the same store works again.
pub async fn a_store_goes_on_after_an_outage(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    direct.append_orders(2).await;
    let relay = direct.relay("relay-under-test").await;
    let mut cursor = Cursor::new();
    assert_eq!(through.claim_on(&relay, 1, &mut cursor).await.len(), 1);
    proxy.cut();
    let down = through.store.claim(&through.outbox, &relay, rows(1), &mut cursor).await;
    assert!(down.as_ref().is_err_and(StoreError::is_transient), "{down:?}");
    proxy.pass();
    let next = eventually("the store claims again", async || {
        through.store.claim(&through.outbox, &relay, rows(1), &mut cursor).await.ok()
    })
    .await;
    assert_eq!(next.events.len(), 1);
}

/// The database committed the step of a bulk job, but the runner did not receive the answer: it
/// repeats, the cursor in the job's row shows the commit, and no dead letter is sent twice or left
/// out.
pub async fn a_job_step_whose_commit_answer_is_lost_sends_nothing_twice(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let relay = direct.relay("relay-a").await;
    let letters = direct.move_many_to_dlq(&relay, 5).await;
    let job = through.taken_job(&retry_all()).await;
    // The first step prepares the statements.
    let job = through.step(&job, "runner-a", 2).await.unwrap();
    assert_eq!(job.done_count, 2);

    proxy.lose_answer_to(b"COMMIT");
    let step = through.store.step_job(&through.outbox, None, job.id, "runner-a", 2);
    let unheard = step.await;
    assert!(matches!(unheard, Err(StoreError::Unavailable(_))), "{unheard:?}");
    assert_eq!(proxy.answers_lost(), 1);
    assert_eq!(direct.count("").await, 4, "the database did it");

    let job = through.step(&job, "runner-a", 2).await.unwrap();
    assert_eq!((job.done_count, job.cursor), (5, letters[4]));
    assert_eq!(direct.count("").await, 5);
    let retries = direct.trail().await;
    assert_eq!(retries.iter().filter(|entry| entry.action == "dlq.retry").count(), 5);
    direct.assert_balanced().await;
}

/// A runner that is cut off in the middle of a step, before its commit, has done nothing; the next
/// one does the step.
pub async fn a_job_step_cut_off_before_its_commit_never_happened(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    let relay = direct.relay("relay-a").await;
    direct.move_many_to_dlq(&relay, 3).await;
    let job = through.taken_job(&retry_all()).await;
    // A transaction that holds a dead letter makes the step wait while the step holds the job's
    // row.
    let mut held = direct.begin().await;
    let lock = format!("UPDATE {}_dlq SET error_detail = 'x' WHERE id = 2", direct.outbox.table());
    held.execute(&lock).await.unwrap();
    let (store, outbox) = (through.store.clone(), through.outbox.clone());
    let id = job.id;
    let step = tokio::spawn(async move { store.step_job(&outbox, None, id, "runner-a", 10).await });
    eventually("the step waits for the dead letter", async || {
        let waits = match direct.store.kind() {
            StoreKind::Mysql => {
                "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() \
                 AND id <> CONNECTION_ID() AND info LIKE '%_dlq%FOR UPDATE%'"
            }
            StoreKind::Postgres | StoreKind::Sqlite => {
                "SELECT count(*) FROM pg_stat_activity \
                 WHERE wait_event_type = 'Lock' AND datname = current_database()"
            }
        };
        (direct.integer(waits).await > 0).then_some(())
    })
    .await;
    proxy.cut();
    assert!(step.await.unwrap().is_err());
    held.rollback().await.unwrap();
    proxy.pass();
    eventually("the cut step is undone and the job can be taken on", async || {
        direct.store.take_job(id, "runner-b", Duration::ZERO).await.ok().flatten()
    })
    .await;
    assert_eq!(direct.count("").await, 0, "nothing had happened");
    let job = direct.step(&job, "runner-b", 10).await.unwrap();
    assert_eq!((job.done_count, direct.count("").await), (3, 3));
    assert!(direct.step(&job, "runner-a", 10).await.is_none(), "the first one is fenced");
    direct.assert_balanced().await;
}

/// A database that does not reply must not be taken as having replied; when it replies again, the
/// same call succeeds.
pub async fn a_silent_database_is_waited_for(db: TestDb) {
    let Behind { proxy, direct, through } = behind_a_proxy(db).await;
    direct.append_orders(1).await;
    let relay = direct.relay("relay-under-test").await;
    proxy.blackhole();
    let (store, outbox, lease) = (through.store.clone(), through.outbox.clone(), relay.clone());
    let claiming =
        tokio::spawn(
            async move { store.claim(&outbox, &lease, rows(1), &mut Cursor::new()).await },
        );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!claiming.is_finished(), "there is no answer to give");
    assert_eq!(direct.text("SELECT status FROM orders_outbox").await.as_deref(), Some("PENDING"));
    proxy.pass();
    assert_eq!(claiming.await.unwrap().unwrap().events.len(), 1);
}
