//! Repeated request ids return duplicates, whichever program was first, and break nothing else.

use std::time::Duration;

use postrider::{AppendError, Appended, NewEvent};
use postrider_store::{Appender, Dedupe, OnSuccess};

use super::steps::order;
use crate::{TestDb, TestServer, eventually};

/// The second append writes nothing, and returns the first one's id.
pub async fn a_repeated_request_id_is_answered_with_the_first_id(db: TestDb) {
    let mut tx = db.begin().await;
    let first = tx.append(&db.outbox, &order(1).request_id("r")).await.unwrap();
    let inside = tx.append(&db.outbox, &order(2).request_id("r")).await.unwrap();
    assert_eq!(inside, Appended::Duplicate { id: first.id() }, "inside of one transaction");
    tx.commit().await.unwrap();

    let mut tx = db.begin().await;
    let across = tx.append(&db.outbox, &order(3).request_id("r")).await.unwrap();
    assert_eq!(across, Appended::Duplicate { id: first.id() }, "across transactions");
    tx.commit().await.unwrap();
    assert_eq!(db.count("").await, 1);

    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    db.deliver(&relay, &claimed, OnSuccess::Delete).await;
    let mut tx = db.begin().await;
    let after = tx.append(&db.outbox, &order(4).request_id("r")).await.unwrap();
    assert_eq!(after, Appended::Duplicate { id: first.id() }, "after the event was delivered");
    tx.commit().await.unwrap();
    db.assert_balanced().await;
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 1);
}

/// The caller's transaction continues after a duplicate, and its other work commits.
pub async fn a_duplicate_does_not_poison_the_callers_transaction(db: TestDb) {
    db.execute("CREATE TABLE business (id integer)").await;
    db.append(&[order(1).request_id("r")]).await;

    let mut tx = db.begin().await;
    tx.execute("INSERT INTO business VALUES (1)").await.unwrap();
    assert!(tx.append(&db.outbox, &order(2).request_id("r")).await.unwrap().is_duplicate());
    let batch = [order(3).request_id("r"), order(4).request_id("s")];
    let answers = tx.append_all(&db.outbox, &batch).await.unwrap();
    assert!(answers[0].is_duplicate() && !answers[1].is_duplicate());
    tx.execute("INSERT INTO business VALUES (2)").await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(db.integer("SELECT count(*) FROM business").await, 2);
    assert_eq!(db.count("").await, 2, "r once and s once");
    db.assert_balanced().await;
}

/// Results are in the given order, and the events of one key keep their order as ids.
pub async fn a_batch_with_duplicates_answers_in_order_and_keeps_the_order_of_keys(db: TestDb) {
    let known = db.append(&[order(1).request_id("known")]).await[0];
    let event = |key: &str, text: &str| NewEvent::new("account", key, "Moved", text);
    let batch = [
        event("b", "1").request_id("z"),
        event("a", "2"),
        event("b", "3").request_id("c"),
        event("a", "4").request_id("known"),
        event("b", "5").request_id("z"),
        event("a", "6").request_id("a"),
        event("b", "7"),
    ];
    let mut tx = db.begin().await;
    let answers = tx.append_all(&db.outbox, &batch).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(answers.len(), batch.len());
    assert_eq!(answers[3], Appended::Duplicate { id: known });
    assert_eq!(answers[4], Appended::Duplicate { id: answers[0].id() });
    let repeated: Vec<_> = answers.iter().map(Appended::is_duplicate).collect();
    assert_eq!(repeated, [false, false, false, true, true, false, false]);
    for (position, answer) in answers.iter().enumerate().filter(|(_, a)| !a.is_duplicate()) {
        let payload = db.column(answer.id(), "payload").await;
        assert_eq!(payload, Some((position + 1).to_string()), "the answer belongs to its event");
    }
    for key in [vec![0, 2, 6], vec![1, 5]] {
        let ids: Vec<i64> = key.iter().map(|position| answers[*position].id()).collect();
        assert!(ids.is_sorted(), "the order of a key is the order of its ids: {ids:?}");
    }
    db.assert_balanced().await;
}

/// A program that derives event ids from its data repeats them together with the request id.
pub async fn a_batch_that_repeats_identity_and_request_id_has_it_new_once(db: TestDb) {
    let identity = uuid::Uuid::new_v4();
    let event = order(1).event_id(identity).request_id("r");
    let mut tx = db.begin().await;
    let answers = tx.append_all(&db.outbox, &[event.clone(), order(2), event]).await.unwrap();
    tx.commit().await.unwrap();
    let repeated: Vec<_> = answers.iter().map(Appended::is_duplicate).collect();
    assert_eq!(repeated, [false, false, true]);
    assert_eq!(answers[2].id(), answers[0].id());
    assert_eq!(db.count("").await, 2);
}

/// Ids that a loose collation would treat as equal are different requests.
pub async fn request_ids_that_only_look_alike_are_distinct(db: TestDb) {
    let alike = [
        "abc",
        "ABC",
        "abc ",
        " abc",
        "äbc",
        "a\u{308}bc",
        "ａｂｃ",
        "strasse",
        "straße",
        "i",
        "ı",
    ];
    let batch: Vec<_> = alike.iter().map(|id| order(1).request_id(*id)).collect();
    let mut tx = db.begin().await;
    let answers = tx.append_all(&db.outbox, &batch).await.unwrap();
    tx.commit().await.unwrap();
    for (id, answer) in alike.iter().zip(&answers) {
        assert!(!answer.is_duplicate(), "{id:?} was taken for another one");
    }
    let mut tx = db.begin().await;
    for (id, first) in alike.iter().zip(&answers) {
        let again = tx.append(&db.outbox, &order(1).request_id(*id)).await.unwrap();
        assert_eq!(again, Appended::Duplicate { id: first.id() }, "{id:?}");
    }
}

/// The second append waits for the first one's end, and then returns a duplicate.
pub async fn a_concurrent_repeat_waits_and_is_answered_with_the_first_id(db: TestDb) {
    let mut first = db.begin().await;
    let id = first.append(&db.outbox, &order(1).request_id("r")).await.unwrap().id();
    let second = repeat(&db);
    still_waiting(&second).await;
    first.commit().await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), Appended::Duplicate { id });
    assert_eq!(db.count("").await, 1);
    db.assert_balanced().await;
}

/// If the first one rolls back, the waiting one becomes the first.
pub async fn a_concurrent_repeat_is_new_when_the_first_rolls_back(db: TestDb) {
    let mut first = db.begin().await;
    let id = first.append(&db.outbox, &order(1).request_id("r")).await.unwrap().id();
    let second = repeat(&db);
    still_waiting(&second).await;
    first.rollback().await.unwrap();
    let answer = second.await.unwrap().unwrap();
    assert!(!answer.is_duplicate());
    if db.store.capabilities().concurrent_writers {
        assert_ne!(answer.id(), id, "ids of rolled-back events are not used again");
    }
    assert_eq!(db.count("").await, 1);
    assert_eq!(db.count("_keys").await, 1);
    db.assert_balanced().await;
}

type Repeat = tokio::task::JoinHandle<Result<Appended, AppendError>>;

/// Appends the same request id in another task, in a transaction of its own.
fn repeat(db: &TestDb) -> Repeat {
    let (begin, outbox) = (db.begin_later(), db.outbox.clone());
    tokio::spawn(async move {
        let mut tx = begin.await;
        let answer = tx.append(&outbox, &order(2).request_id("r")).await;
        if answer.is_ok() {
            tx.commit().await.unwrap();
        }
        answer
    })
}

/// Checks that the task still waits. There is no signal for that, so some time passes in which it
/// would have finished.
async fn still_waiting(task: &Repeat) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!task.is_finished(), "the second one must wait for the end of the first");
}

/// In a snapshot older than the first one's commit, a duplicate cannot be detected: the database
/// returns an error, or a normal duplicate if the isolation level does not exist or sees the key.
/// MariaDB does the one or the other by `innodb_snapshot_isolation`, which is on from 11.6.2.
pub async fn a_repeat_in_an_older_snapshot_is_an_error_only_where_declared(db: TestDb) {
    if !db.store.capabilities().concurrent_writers {
        // One writer at a time: the snapshot of a writing transaction cannot be older than a
        // commit.
        db.append(&[order(1).request_id("r")]).await;
        let mut tx = db.begin().await;
        assert!(tx.append(&db.outbox, &order(2).request_id("r")).await.unwrap().is_duplicate());
        return;
    }
    let mut old = db.begin_repeatable_read().await;
    old.execute(&format!("SELECT count(*) FROM {}", db.outbox.table())).await.unwrap();
    let id = db.append(&[order(1).request_id("r")]).await[0];
    let answer = old.append(&db.outbox, &order(2).request_id("r")).await;
    if db.store.capabilities().serialization_failures {
        let Err(AppendError::Database(error)) = answer else { panic!("{answer:?}") };
        let code = error.as_database_error().and_then(|e| e.code()).unwrap_or_default();
        assert_eq!(code, "40001", "{error}");
    } else if db.server == TestServer::MariadbNext {
        let Err(AppendError::Database(error)) = answer else { panic!("{answer:?}") };
        assert!(error.to_string().contains("Record has changed"), "{error}");
    } else {
        assert_eq!(answer.unwrap(), Appended::Duplicate { id });
        old.commit().await.unwrap();
    }
    assert_eq!(db.count("").await, 1);
}

/// For other languages: the row is skipped, or the statement fails, as declared.
pub async fn a_repeat_in_a_plain_insert_behaves_as_declared(db: TestDb) {
    let table = db.outbox.table();
    let insert = |request: &str| {
        format!(
            "INSERT INTO {table} (request_id, aggregate_type, aggregate_id, event_type, payload)
             VALUES ('{request}', 'order', '1', 'OrderPlaced', '{{}}')"
        )
    };
    assert_eq!(db.execute(&insert("r")).await, 1);
    let repeated = db.try_execute(&insert("r")).await;
    if db.store.capabilities().skips_duplicates {
        repeated.unwrap();
    } else {
        let error = repeated.unwrap_err();
        let cause = error.as_database_error().unwrap();
        assert!(cause.is_unique_violation(), "{error}");
    }
    assert_eq!(db.count("").await, 1);
    assert_eq!(db.count("_keys").await, 1);
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 1);
    let mut tx = db.begin().await;
    assert!(tx.append(&db.outbox, &order(1).request_id("r")).await.unwrap().is_duplicate());
    drop(tx);
    db.assert_balanced().await;
}

/// Of many concurrent appends of the same event, each gets a result.
pub async fn the_same_event_from_many_at_once_is_new_once(db: TestDb) {
    let appender = Appender::connect(&db.url, 10).await.unwrap();
    for round in 0..20 {
        let batches = (0..20).map(|_| vec![order(1).request_id(format!("r-{round}"))]);
        let new = append_at_once(&appender, &db, batches).await;
        assert_eq!(new, 1, "round {round}");
    }
    db.assert_balanced().await;
}

/// Batches that share request ids of several keys wait for each other, and none fails. Some have
/// another smallest request id per key than the others. The events between the shared ones take
/// time.
pub async fn overlapping_batches_from_many_at_once_are_all_answered(db: TestDb) {
    const BETWEEN: usize = 100;
    const PAIRS: usize = 10;
    let appender = Appender::connect(&db.url, 10).await.unwrap();
    for round in 0..3 {
        let event = |key: &str, request: &str| {
            NewEvent::new("account", key, "Moved", "{}").request_id(format!("{request}-{round}"))
        };
        let between = |key: &str, request: &str, batch: usize| {
            let ids = (0..BETWEEN).map(|number| format!("{request}-{batch}-{number}"));
            ids.map(|id| event(key, &id)).collect::<Vec<_>>()
        };
        let batches = (0..PAIRS).flat_map(|pair| {
            let whole = [
                vec![event("a", "1"), event("a", "9")],
                between("a", "95", pair),
                vec![event("b", "5")],
            ];
            let part = [vec![event("b", "5")], between("b", "55", pair), vec![event("a", "9")]];
            [whole.concat(), part.concat()]
        });
        let new = append_at_once(&appender, &db, batches).await;
        assert_eq!(new, 3 + 2 * PAIRS * BETWEEN, "round {round}");
    }
    db.assert_balanced().await;
}

/// Appends each batch in its own transaction, all concurrently; returns how many events were new.
async fn append_at_once(
    appender: &Appender,
    db: &TestDb,
    batches: impl Iterator<Item = Vec<NewEvent>>,
) -> usize {
    let appends = batches.map(|batch| {
        let (appender, outbox) = (appender.clone(), db.outbox.clone());
        tokio::spawn(async move { appender.append_all(&outbox, &batch).await.unwrap() })
    });
    let appends: Vec<_> = appends.collect();
    let mut new = 0;
    for append in appends {
        new += append.await.unwrap().iter().filter(|answer| !answer.is_duplicate()).count();
    }
    new
}

/// `open`: the request id is taken while the event is live, and free when it leaves for any reason.
pub async fn an_open_request_id_is_free_again_when_its_event_leaves(db: TestDb) {
    let outbox = db.add_outbox(Dedupe::Open).await;
    let db = db.with_outbox(outbox);
    let relay = db.relay("relay-a").await;
    for leaves_by_death in [false, true] {
        let first = db.append(&[order(1).request_id("r")]).await[0];
        let claimed = db.claim(&relay, 10).await;
        assert_eq!(super::steps::ids(&claimed), [first]);
        assert_eq!(db.append(&[order(2).request_id("r")]).await, [first], "taken while it lives");
        match leaves_by_death {
            false => assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Archive).await, 1),
            true => drop(db.move_to_dlq(&relay, &claimed[0], "no").await),
        }
        assert_eq!(db.count("_keys").await, 0);
    }
    db.assert_balanced().await;
}

/// The first event may leave between the refusal of the second and the lookup of its id.
pub async fn an_open_request_id_that_is_freed_meanwhile_is_no_error(db: TestDb) {
    let outbox = db.add_outbox(Dedupe::Open).await;
    let db = std::sync::Arc::new(db.with_outbox(outbox));
    let relay = db.relay("relay-a").await;
    let appending = {
        let db = std::sync::Arc::clone(&db);
        tokio::spawn(async move {
            let mut fresh = 0;
            for _ in 0..200 {
                let mut tx = db.begin().await;
                let answer = tx.append(&db.outbox, &order(1).request_id("r")).await.unwrap();
                tx.commit().await.unwrap();
                fresh += i64::from(!answer.is_duplicate());
            }
            fresh
        })
    };
    let mut delivered = 0;
    eventually("everything appended is delivered", async || {
        let done = appending.is_finished();
        let claimed = db.claim(&relay, 10).await;
        delivered += claimed.len();
        db.deliver(&relay, &claimed, OnSuccess::Delete).await;
        (done && claimed.is_empty()).then_some(())
    })
    .await;
    let fresh = appending.await.unwrap();
    assert_eq!(i64::try_from(delivered).unwrap(), fresh, "each new answer is one delivery");
    db.assert_balanced().await;
}
