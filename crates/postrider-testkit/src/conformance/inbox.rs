//! Inboxes: an event that arrives twice, from any sender at any time, is processed once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::{DeadMessage, INBOX_RETENTION, Inbox, Incoming, ReceiveError, Received};
use postrider_store::{AuditFilter, ConsumerLedger, InboxCleaned, Page, StoreError};

use crate::TestDb;

fn fraud() -> Inbox {
    Inbox::new("fraud").unwrap()
}

async fn receive(db: &TestDb, inbox: &Inbox, ids: &[&str]) -> Vec<Received> {
    let events: Vec<Incoming> = ids.iter().copied().map(Incoming::new).collect();
    let mut tx = db.begin().await;
    let answers = tx.receive_all(inbox, &events).await.unwrap();
    tx.commit().await.unwrap();
    answers
}

async fn receive_dead(db: &TestDb, event_id: &str) -> Received {
    let mut tx = db.begin().await;
    let answer = tx.receive_dead(&fraud(), &dead(&Incoming::new(event_id), &headers())).await;
    tx.commit().await.unwrap();
    answer.unwrap()
}

fn headers() -> BTreeMap<String, String> {
    [("größe".to_owned(), "5 €".to_owned())].into()
}

fn dead<'a>(event: &'a Incoming, headers: &'a BTreeMap<String, String>) -> DeadMessage<'a> {
    DeadMessage {
        event,
        source: "transfers/3@17",
        key: Some(b"\0\xffkey"),
        headers,
        payload: b"\0\xfe not text",
        error: "no\0 such account",
    }
}

/// Returns received, applied, ignored and dead of a consumer, and asserts that they balance.
async fn ledger(db: &TestDb, consumer: &str) -> (i64, i64, i64, i64) {
    let ledgers = db.store.consumer_ledgers().await.unwrap();
    let ledger = ledgers.into_iter().find(|ledger| ledger.consumer == consumer).unwrap();
    assert!(ledger.balanced(), "{ledger:?}");
    (ledger.received, ledger.applied, ledger.ignored, ledger.dead)
}

/// Consumers are independent of each other.
pub async fn an_event_is_new_once_for_each_consumer(db: TestDb) {
    let (fraud, mail) = (fraud(), Inbox::new("mail").unwrap());
    let mut tx = db.begin().await;
    let event = Incoming::new("e-1");
    assert_eq!(tx.receive(&fraud, &event).await.unwrap(), Received::New);
    assert_eq!(
        tx.receive(&fraud, &event).await.unwrap(),
        Received::Duplicate,
        "in one transaction"
    );
    tx.commit().await.unwrap();
    assert_eq!(receive(&db, &fraud, &["e-1"]).await, [Received::Duplicate]);
    assert_eq!(receive(&db, &mail, &["e-1"]).await, [Received::New]);
    assert_eq!(ledger(&db, "fraud").await, (3, 1, 2, 0));
    assert_eq!(ledger(&db, "mail").await, (1, 1, 0, 0));
}

/// If the process dies before its COMMIT, the event is new when it arrives again.
pub async fn a_rolled_back_transaction_received_nothing(db: TestDb) {
    let mut tx = db.begin().await;
    assert!(tx.receive(&fraud(), &Incoming::new("e-1")).await.unwrap().is_new());
    tx.rollback().await.unwrap();
    assert!(db.store.consumer_ledgers().await.unwrap().is_empty(), "not even in the ledger");
    assert_eq!(receive(&db, &fraud(), &["e-1"]).await, [Received::New]);
    assert_eq!(ledger(&db, "fraud").await, (1, 1, 0, 0));
}

/// One statement for a batch, whatever it contains.
pub async fn a_batch_is_answered_in_order_and_a_repeat_in_it_is_ignored(db: TestDb) {
    use Received::{Duplicate, New};
    assert_eq!(receive(&db, &fraud(), &["d"]).await, [New]);
    let answers = receive(&db, &fraud(), &["z", "d", "a", "z", "m"]).await;
    assert_eq!(answers, [New, Duplicate, New, Duplicate, New]);
    assert_eq!(receive(&db, &fraud(), &[]).await, []);
    assert_eq!(ledger(&db, "fraud").await, (6, 4, 2, 0));
}

type Second = tokio::task::JoinHandle<Result<Received, ReceiveError>>;

/// Receives the same event in another process of the same consumer.
fn second(db: &TestDb) -> Second {
    let begin = db.begin_later();
    tokio::spawn(async move {
        let mut tx = begin.await;
        let answer = tx.receive(&fraud(), &Incoming::new("e-1")).await;
        tx.commit().await.unwrap();
        answer
    })
}

/// Checks that the task still waits. There is no signal for that, so some time passes in which it
/// would have finished.
async fn still_waiting(task: &Second) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!task.is_finished(), "the second one must wait for the end of the first");
}

/// After a rebalance, another process has the partition while the first is still processing.
pub async fn of_two_consumers_at_once_with_the_same_event_one_waits_and_ignores_it(db: TestDb) {
    let mut first = db.begin().await;
    assert!(first.receive(&fraud(), &Incoming::new("e-1")).await.unwrap().is_new());
    let second = second(&db);
    still_waiting(&second).await;
    first.commit().await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), Received::Duplicate);
    assert_eq!(ledger(&db, "fraud").await, (2, 1, 1, 0));
}

/// If the first process dies, the second one does the work.
pub async fn an_event_is_new_for_the_second_when_the_first_rolls_back(db: TestDb) {
    let mut first = db.begin().await;
    assert!(first.receive(&fraud(), &Incoming::new("e-1")).await.unwrap().is_new());
    let second = second(&db);
    still_waiting(&second).await;
    first.rollback().await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), Received::New);
    assert_eq!(ledger(&db, "fraud").await, (1, 1, 0, 0));
}

/// Overlapping batches in different orders: a deadlock may roll one back, and it is repeated.
pub async fn batches_of_the_same_events_at_once_apply_each_once(db: TestDb) {
    db.execute("CREATE TABLE effects (event_id varchar(100) PRIMARY KEY)").await;
    let db = Arc::new(db);
    let consumers: Vec<_> = (0..4)
        .map(|shift| {
            let db = Arc::clone(&db);
            tokio::spawn(async move {
                for round in 0..10 {
                    let ids = (0..20).map(|n| format!("e-{}", round * 10 + (n * 7 + shift) % 20));
                    let events: Vec<Incoming> = ids.map(Incoming::new).collect();
                    while let Err(error) = handle(&db, &events).await {
                        assert!(StoreError::from(error).is_transient());
                    }
                }
            })
        })
        .collect();
    for consumer in consumers {
        consumer.await.unwrap();
    }
    assert_eq!(db.integer("SELECT count(*) FROM effects").await, 110);
    assert_eq!(ledger(&db, "fraud").await, (800, 110, 690, 0));
}

/// Processes a batch with its effect, in one transaction.
async fn handle(db: &TestDb, events: &[Incoming]) -> Result<(), sqlx::Error> {
    let mut tx = db.begin().await;
    let answers = tx.receive_all(&fraud(), events).await.map_err(|error| match error {
        ReceiveError::Database(error) => error,
        error => panic!("{error}"),
    })?;
    for (event, answer) in events.iter().zip(answers) {
        if answer.is_new() {
            tx.execute(&format!("INSERT INTO effects VALUES ('{}')", event.event_id)).await?;
        }
    }
    tx.commit().await
}

/// Identities that a loose collation would treat as equal are different events.
pub async fn identities_that_only_look_alike_are_distinct(db: TestDb) {
    let alike = ["abc", "ABC", "abc ", " abc", "äbc", "a\u{308}bc", "strasse", "straße", "'; --"];
    let answers = receive(&db, &fraud(), &alike).await;
    assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
    let long = "😀".repeat(100);
    assert_eq!(receive(&db, &fraud(), &[&long]).await, [Received::New]);
    let other = format!("{}x", "😀".repeat(99));
    assert_eq!(receive(&db, &fraud(), &[&other]).await, [Received::New], "no part is cut off");
    assert_eq!(receive(&db, &fraud(), &[&long]).await, [Received::Duplicate]);
}

/// The transaction continues after a refusal.
pub async fn identities_that_no_column_holds_are_refused_before_anything_is_written(db: TestDb) {
    let mut tx = db.begin().await;
    for wrong in ["", "a\0b", &"x".repeat(101)] {
        let answer = tx.receive_all(&fraud(), &[Incoming::new("ok"), Incoming::new(wrong)]).await;
        assert!(matches!(answer, Err(ReceiveError::Invalid(_))), "{answer:?}");
    }
    assert!(tx.receive(&fraud(), &Incoming::new("ok")).await.unwrap().is_new());
    tx.commit().await.unwrap();
    assert_eq!(ledger(&db, "fraud").await, (1, 1, 0, 0));
}

/// A poison message that the broker sends again does not get a second dead letter, and is not
/// processed.
pub async fn a_dead_message_is_a_letter_once_and_its_repeats_are_ignored(db: TestDb) {
    assert_eq!(receive_dead(&db, "e-1").await, Received::New);
    assert_eq!(receive_dead(&db, "e-1").await, Received::Duplicate);
    assert_eq!(receive(&db, &fraud(), &["e-1", "e-2"]).await, [Received::Duplicate, Received::New]);
    assert_eq!(receive_dead(&db, "e-2").await, Received::Duplicate, "it was applied");
    assert_eq!(ledger(&db, "fraud").await, (5, 1, 3, 1));

    let letters = db.store.inbox_letters(Some("fraud"), None, 10).await.unwrap();
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.event_id.as_str(), letter.source.as_str()), ("e-1", "transfers/3@17"));
    assert_eq!(letter.key.as_deref(), Some(&b"\0\xffkey"[..]));
    assert_eq!(letter.payload, b"\0\xfe not text");
    assert_eq!((&letter.headers, letter.error_message.as_str()), (&headers(), "no such account"));
    assert!(db.store.inbox_letters(Some("mail"), None, 10).await.unwrap().is_empty());
    assert!(db.store.inbox_letters(None, Some(letter.id), 10).await.unwrap().is_empty());
}

/// Operators can act on unresolved dead letters only, and every action is audited.
pub async fn a_letter_is_resolved_or_asked_for_once_and_audited(db: TestDb) {
    let _ = (receive_dead(&db, "e-1").await, receive_dead(&db, "e-2").await);
    let ids: Vec<i64> =
        db.store.inbox_letters(None, None, 10).await.unwrap().iter().map(|l| l.id).collect();
    for _ in 0..2 {
        db.store.retry_inbox_letter(ids[0], "ann", "account was made").await.unwrap();
    }
    let letters = db.store.inbox_letters(None, None, 1).await.unwrap();
    assert!(letters[0].id == ids[0] && letters[0].retry_asked_at.is_some());
    db.store.resolve_inbox_letter(ids[1], "ann", "not ours").await.unwrap();
    for id in [ids[1], 999] {
        let refused = db.store.resolve_inbox_letter(id, "bob", "").await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        let refused = db.store.retry_inbox_letter(id, "bob", "").await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    let ledgers = db.store.consumer_ledgers().await.unwrap();
    assert_eq!((ledgers[0].dead, ledgers[0].unresolved), (2, 1));
    let audit = db.store.audit(&AuditFilter::default(), Page::first(10)).await.unwrap().rows;
    let actions: Vec<&str> = audit.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, ["inbox.resolve", "inbox.retry", "inbox.retry"]);
    assert!(audit.iter().all(|entry| entry.operator == "ann" && entry.detail.contains("fraud")));
}

/// A forgotten identity is new when it arrives again; the ledger still counts the earlier one.
pub async fn old_identities_are_forgotten_in_chunks_and_the_ledger_still_balances(db: TestDb) {
    let old: Vec<String> = (0..25).map(|n| format!("old-{n}")).collect();
    receive(&db, &fraud(), &old.iter().map(String::as_str).collect::<Vec<_>>()).await;
    receive(&db, &Inbox::new("mail").unwrap(), &["old"]).await;
    let day = Duration::from_secs(24 * 3600);
    db.age("postrider_inbox", "received_at", INBOX_RETENTION + day, "1 = 1").await;
    receive(&db, &fraud(), &["young", "old-0"]).await;
    db.age("postrider_inbox", "received_at", INBOX_RETENTION - day, "event_id = 'young'").await;

    let cleaned = db.store.clean_inbox(None, INBOX_RETENTION, 10).await.unwrap();
    assert_eq!(cleaned, InboxCleaned { forgotten: 26, ..InboxCleaned::default() });
    assert_eq!(db.integer("SELECT count(*) FROM postrider_inbox").await, 1);
    assert_eq!(ledger(&db, "fraud").await, (27, 26, 1, 0));
    assert_eq!(ledger(&db, "mail").await, (1, 1, 0, 0));
    let answers = receive(&db, &fraud(), &["old-0", "young"]).await;
    assert_eq!(answers, [Received::New, Received::Duplicate]);
    assert_eq!(db.store.clean_inbox(None, Duration::MAX, 10).await.unwrap().forgotten, 0);
}

/// One consumer's short retention must not apply to others: their repeats would be new.
pub async fn a_consumer_forgets_its_own_and_nobody_elses(db: TestDb) {
    let mail = Inbox::new("mail").unwrap();
    for inbox in [&fraud(), &mail] {
        receive(&db, inbox, &["e-1", "e-2", "e-3"]).await;
        let mut tx = db.begin().await;
        let received = tx.receive_dead(inbox, &dead(&Incoming::new("e-4"), &headers())).await;
        assert!(received.unwrap().is_new());
        tx.commit().await.unwrap();
    }
    for letter in db.store.inbox_letters(None, None, 10).await.unwrap() {
        db.store.resolve_inbox_letter(letter.id, "ann", "seen").await.unwrap();
    }
    let hour = Duration::from_secs(3600);
    db.age("postrider_inbox", "received_at", 2 * hour, "1 = 1").await;
    db.age("postrider_inbox_dlq", "resolved_at", 2 * hour, "1 = 1").await;
    let cleaned = db.store.clean_inbox(Some("mail"), hour, 2).await.unwrap();
    assert_eq!((cleaned.forgotten, cleaned.letters), (4, 1));
    assert_eq!(receive(&db, &fraud(), &["e-1"]).await, [Received::Duplicate]);
    assert_eq!(receive(&db, &mail, &["e-1"]).await, [Received::New]);
    assert_eq!(db.integer("SELECT count(*) FROM postrider_inbox_dlq").await, 1);
    assert_eq!(
        (ledger(&db, "fraud").await, ledger(&db, "mail").await),
        ((5, 3, 1, 1), (5, 4, 0, 1))
    );
}

/// The broker may send a poison message again, however long its dead letter stays unresolved.
pub async fn an_identity_whose_letter_waits_is_not_forgotten(db: TestDb) {
    let _ = (receive_dead(&db, "e-1").await, receive_dead(&db, "e-2").await);
    let letters = db.store.inbox_letters(None, None, 10).await.unwrap();
    db.store.resolve_inbox_letter(letters[0].id, "ann", "seen").await.unwrap();
    let long = INBOX_RETENTION * 2;
    db.age("postrider_inbox", "received_at", long, "1 = 1").await;
    db.age("postrider_inbox_dlq", "resolved_at", long, "1 = 1").await;
    let cleaned = db.store.clean_inbox(None, INBOX_RETENTION, 10).await.unwrap();
    assert_eq!((cleaned.forgotten, cleaned.letters), (1, 1));
    assert_eq!(receive(&db, &fraud(), &["e-1"]).await, [Received::Duplicate]);
    assert_eq!(ledger(&db, "fraud").await, (3, 0, 1, 2));
}

/// Maintenance sums up entries while consumers write new ones.
pub async fn folding_keeps_the_consumers_ledgers(db: TestDb) {
    for n in 0..30 {
        receive(&db, &fraud(), &[&format!("e-{n}"), "same"]).await;
    }
    receive(&db, &Inbox::new("mail").unwrap(), &["e-1"]).await;
    let mut open = db.begin().await;
    assert!(open.receive(&fraud(), &Incoming::new("late")).await.unwrap().is_new());
    if db.store.capabilities().concurrent_writers {
        assert!(db.store.fold_inbox_ledger(7).await.unwrap() > 0);
    }
    open.commit().await.unwrap();
    for _ in 0..2 {
        db.store.fold_inbox_ledger(7).await.unwrap();
        assert_eq!(ledger(&db, "fraud").await, (61, 32, 29, 0));
        assert_eq!(ledger(&db, "mail").await, (1, 1, 0, 0));
    }
    assert!(db.integer("SELECT count(*) FROM postrider_inbox_ledger").await <= 10);
}

/// The counts of the programs no longer match the rows.
pub async fn an_inbox_row_deleted_by_hand_unbalances_the_ledger(db: TestDb) {
    receive(&db, &fraud(), &["e-1", "e-2"]).await;
    db.execute("DELETE FROM postrider_inbox WHERE event_id = 'e-1'").await;
    let ledgers: Vec<ConsumerLedger> = db.store.consumer_ledgers().await.unwrap();
    assert!(!ledgers[0].balanced(), "{ledgers:?}");
}
