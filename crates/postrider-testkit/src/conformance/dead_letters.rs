//! Listing, retrying, resolving and importing dead letters; every action is audited.

use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{
    AuditFilter, CountLimit, Cursor, DeadLetter, DeadReason, DlqFilter, ImportEntry, Imported,
    Lease, OnSuccess, Page, StoreError,
};

use super::steps::{death, failure, ids, order, originals};
use crate::TestDb;

const FIRST: Page = Page::first(100).within(Duration::MAX);

async fn letter(db: &TestDb, id: i64) -> DeadLetter {
    db.store.dead_letter(&db.outbox, id).await.unwrap().unwrap()
}

/// Appends and claims one event, moves it to the dead letters, and returns the dead letter.
async fn one_dead_letter(db: &TestDb, relay: &Lease, event: NewEvent) -> DeadLetter {
    db.append(&[event]).await;
    let claimed = db.claim(relay, 1).await.remove(0);
    let id = db.move_to_dlq(relay, &claimed, "422 Unprocessable").await;
    letter(db, id).await
}

/// A retry is a new row with a new budget of attempts, but the same event.
pub async fn a_retry_keeps_the_identity_and_starts_afresh(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = order(1).request_id("r").header("x", "ü").max_retries(4);
    let dead = one_dead_letter(&db, &relay, event).await;

    let fresh = db.store.retry(&db.outbox, dead.id, "ann", "fixed the address").await.unwrap();

    let claimed = db.claim(&relay, 10).await;
    assert_eq!(ids(&claimed), [fresh]);
    let again = &claimed[0];
    assert!(fresh > dead.original_id);
    assert_eq!(again.event_id, dead.event_id);
    assert_eq!(again.request_id, dead.request_id);
    assert_eq!(again.content_hash, dead.content_hash);
    assert_eq!((Some(&again.payload), &again.headers), (dead.payload.as_ref(), &dead.headers));
    assert_eq!(again.hash_matches(), Some(true));
    assert_eq!((again.retry_count, again.crash_count), (0, 0), "a fresh budget");
    assert_eq!((again.redrive_count, again.max_retries), (1, Some(4)));
    let resolved = letter(&db, dead.id).await;
    assert!(resolved.resolved && resolved.resolved_at.is_some());
    assert_eq!(resolved.resolved_by.as_deref(), Some("ann"));
    assert_eq!(resolved.resolution_note.as_deref(), Some("fixed the address"));
    assert_eq!(resolved.retried_as, Some(fresh));
    assert_eq!(db.append(&[order(2).request_id("r")]).await.len(), 1);
    assert_eq!(db.count("").await, 1, "the request id is still known");
    db.assert_balanced().await;

    let second = db.move_to_dlq(&relay, again, "422 again").await;
    assert_eq!(letter(&db, second).await.redrive_count, 1);
    let fresh = db.store.retry(&db.outbox, second, "ann", "").await.unwrap();
    let claimed = db.claim(&relay, 10).await;
    assert_eq!((claimed[0].id, claimed[0].redrive_count), (fresh, 2));
    assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Archive).await, 1);
    db.assert_balanced().await;
}

/// Retrying an event that was tampered with does not give it a new hash.
pub async fn a_retry_keeps_the_stored_hash_of_a_tampered_event(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dead = one_dead_letter(&db, &relay, order(1)).await;
    let table = db.outbox.table();
    db.execute(&format!("UPDATE {table}_dlq SET payload = 'other' WHERE id = {}", dead.id)).await;
    db.store.retry(&db.outbox, dead.id, "ann", "").await.unwrap();
    assert_eq!(db.claim(&relay, 10).await[0].hash_matches(), Some(false));
}

/// An action on a resolved or unknown dead letter is refused with a message, and changes nothing.
pub async fn acting_on_a_resolved_or_unknown_entry_is_refused(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let retried = one_dead_letter(&db, &relay, order(1)).await.id;
    let resolved = one_dead_letter(&db, &relay, order(2)).await.id;
    let fresh = db.store.retry(&db.outbox, retried, "ann", "").await.unwrap();
    db.store.resolve(&db.outbox, resolved, "bob", "not needed").await.unwrap();
    let audited = db.trail().await.len();

    for (id, reason) in [(retried, "ann"), (resolved, "bob"), (resolved + 1_000, "no dead letter")]
    {
        for answer in [
            db.store.retry(&db.outbox, id, "eve", "").await.map(drop),
            db.store.resolve(&db.outbox, id, "eve", "").await,
        ] {
            let Err(StoreError::Refused(message)) = answer else { panic!("{answer:?}") };
            assert!(message.contains(reason), "{message}");
        }
    }
    assert_eq!(db.count("").await, 1, "only the first retry's event: {fresh}");
    let untouched = letter(&db, resolved).await;
    assert_eq!(untouched.resolved_by.as_deref(), Some("bob"));
    assert_eq!(untouched.retried_as, None);
    assert_eq!(db.trail().await.len(), audited, "refusals are not actions");
    db.assert_balanced().await;
}

/// A resolution by hand can be reopened, which only the audit trail shows; a retried event stays
/// retried. A repeat, after a lost answer, changes nothing.
pub async fn a_resolution_is_taken_back_unless_the_event_was_sent_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let retried = one_dead_letter(&db, &relay, order(1)).await.id;
    let resolved = one_dead_letter(&db, &relay, order(2)).await.id;
    db.store.retry(&db.outbox, retried, "ann", "").await.unwrap();
    db.store.resolve(&db.outbox, resolved, "bob", "the wrong one").await.unwrap();

    db.store.reopen(&db.outbox, resolved, "bob", "a slip").await.unwrap();

    let open = letter(&db, resolved).await;
    assert!(!open.resolved && open.resolved_at.is_none() && open.resolved_by.is_none());
    assert_eq!(open.resolution_note, None);
    let trail = db.trail().await;
    assert_eq!((trail[0].action.as_str(), trail[0].detail.as_str()), ("dlq.reopen", "a slip"));
    for (id, reason) in
        [(resolved, "is not resolved"), (retried, "was sent again"), (4_711, "no dead letter")]
    {
        let answer = db.store.reopen(&db.outbox, id, "eve", "").await;
        let Err(StoreError::Refused(message)) = answer else { panic!("{answer:?}") };
        assert!(message.contains(reason), "{message}");
    }
    assert_eq!(db.trail().await.len(), trail.len(), "refusals are not actions");
    db.store.retry(&db.outbox, resolved, "ann", "").await.unwrap();
    db.assert_balanced().await;
}

/// If two operators act at once, the second waits for the first and is then refused.
pub async fn of_two_operators_at_once_the_second_is_refused(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dead = one_dead_letter(&db, &relay, order(1)).await;
    let mut first = db.begin().await;
    let resolve = format!(
        "UPDATE {}_dlq SET resolved = true, resolved_by = 'ann' WHERE id = {}",
        db.outbox.table(),
        dead.id
    );
    first.execute(&resolve).await.unwrap();
    let second = {
        let db = db.clone();
        tokio::spawn(async move { db.store.retry(&db.outbox, dead.id, "bob", "").await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished(), "the entry is being acted on");
    first.commit().await.unwrap();
    let answer = second.await.unwrap();
    assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    assert_eq!(db.count("").await, 0, "nothing was appended");
    assert_eq!(letter(&db, dead.id).await.resolved_by.as_deref(), Some("ann"));
    db.assert_balanced().await;
}

/// Every action adds a line to the audit trail: who, what, where, why.
pub async fn every_action_is_audited(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let first = one_dead_letter(&db, &relay, order(1)).await;
    let second = one_dead_letter(&db, &relay, order(2)).await;
    db.store.resolve(&db.outbox, second.id, "bob", "a test order").await.unwrap();
    db.store.retry(&db.outbox, first.id, "ann", "address fixed").await.unwrap();
    let entry = ImportEntry { original_id: 4_711, ..entry_of(&first) };
    db.store.import(&db.outbox, &entry, "cho").await.unwrap();

    let trail = db.trail().await;

    let lines: Vec<_> = trail.iter().map(|e| (e.operator.as_str(), e.action.as_str())).collect();
    let expected = [("cho", "dlq.import"), ("ann", "dlq.retry"), ("bob", "dlq.resolve")];
    assert_eq!(lines, expected, "newest first");
    assert!(trail.iter().all(|entry| entry.outbox == db.outbox.name()));
    assert_eq!(trail[1].target, first.id.to_string());
    assert!(trail[1].detail.contains("address fixed"));
    assert_eq!(trail[2].detail, "a test order");
    assert!(trail[0].at >= trail[2].at);
    assert_eq!(
        db.store.audit(&AuditFilter::default(), Page::first(1)).await.unwrap().rows.len(),
        1,
        "at most what was asked for"
    );
}

/// Filters by type, aggregate, error text, reason, state and time; counts agree with lists.
pub async fn dead_letters_are_filtered_and_counted(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = |key: &str, kind: &str| NewEvent::new("order", key, kind, "{}");
    db.append(&[event("1", "Placed"), event("2", "Paid"), NewEvent::new("bill", "1", "Paid", "")])
        .await;
    let claimed = db.claim(&relay, 10).await;
    let deaths = [
        death(&claimed[0], DeadReason::Rejected, "HTTP 422: Ünprocessable 100% 'quoted'"),
        death(&claimed[1], DeadReason::Exhausted, "timeout after 5s"),
        death(&claimed[2], DeadReason::Exhausted, "TIMEOUT_x"),
    ];
    db.store.settle_dead(&db.outbox, &relay, &deaths).await.unwrap();
    let all = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await.unwrap().rows;
    let of = |position: usize| {
        let original = claimed[position].id;
        all.iter().find(|letter| letter.original_id == original).unwrap().clone()
    };
    assert!(all.is_sorted_by(|a, b| a.id > b.id), "newest first");
    db.store.resolve(&db.outbox, of(0).id, "ann", "").await.unwrap();
    db.age(
        &format!("{}_dlq", db.outbox.table()),
        "failed_at",
        Duration::from_secs(3600),
        &format!("id = {}", of(1).id),
    )
    .await;
    let half_an_hour_ago = of(0).failed_at - chrono::Duration::minutes(30);

    let some = |text: &str| Some(text.to_owned());
    let any = DlqFilter::default;
    let cases = [
        (DlqFilter { event_type: some("Paid"), ..any() }, vec![1, 2]),
        (DlqFilter { aggregate_type: some("bill"), ..any() }, vec![2]),
        (DlqFilter { aggregate_id: some("1"), ..any() }, vec![0, 2]),
        (DlqFilter { error: some("timeout"), ..any() }, vec![1, 2]),
        (DlqFilter { error: some("100%"), ..any() }, vec![0]),
        (DlqFilter { error: some("TIMEOUT_"), ..any() }, vec![2]),
        (DlqFilter { error: some("'quoted'"), ..any() }, vec![0]),
        (DlqFilter { error: some("' OR 1=1 --"), ..any() }, vec![]),
        (DlqFilter { event_type: some("' OR 1=1 --"), ..any() }, vec![]),
        (DlqFilter { reason: Some(DeadReason::Exhausted), ..any() }, vec![1, 2]),
        (DlqFilter { reason: Some(DeadReason::Crash), ..any() }, vec![]),
        (DlqFilter { resolved: Some(true), ..any() }, vec![0]),
        (DlqFilter { resolved: Some(false), ..any() }, vec![1, 2]),
        (DlqFilter { since: Some(half_an_hour_ago), ..any() }, vec![0, 2]),
        (DlqFilter { until: Some(half_an_hour_ago), ..any() }, vec![1]),
        (any(), vec![0, 1, 2]),
    ];
    for (filter, expected) in cases {
        let found = db.store.dead_letters(&db.outbox, &filter, FIRST).await.unwrap().rows;
        let mut originals: Vec<_> = found.iter().map(|letter| letter.original_id).collect();
        originals.sort_unstable();
        let expected: Vec<_> =
            expected.iter().map(|position: &usize| claimed[*position].id).collect();
        assert_eq!(originals, expected, "{filter:?}");
        let count =
            db.store.dead_letter_count(&db.outbox, &filter, CountLimit::NONE).await.unwrap().count;
        assert_eq!(usize::try_from(count).unwrap(), expected.len(), "{filter:?}");
    }
    // Alerts depend on this count: even the shortest budget must not turn it into a guess.
    let open = DlqFilter { resolved: Some(false), ..any() };
    for (count_max, expected) in [(1, (1, true)), (2, (2, false)), (10, (2, false))] {
        let limit = CountLimit { count_max, budget: Duration::ZERO };
        let counted = db.store.dead_letter_count(&db.outbox, &open, limit).await.unwrap();
        assert_eq!((counted.count, counted.at_least), expected, "at most {count_max}");
    }
}

/// The next page continues below the last id.
pub async fn pages_of_dead_letters_neither_overlap_nor_leave_gaps(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append_orders(5).await;
    let mut expected = Vec::new();
    for event in db.claim(&relay, 10).await {
        expected.insert(0, db.move_to_dlq(&relay, &event, "no").await);
    }
    let mut seen = Vec::new();
    let mut page = Page::first(2).within(Duration::MAX);
    loop {
        let found =
            db.store.dead_letters(&db.outbox, &DlqFilter::default(), page).await.unwrap().rows;
        let Some(last) = found.last() else { break };
        page.before_id = Some(last.id);
        seen.extend(found.iter().map(|letter| letter.id));
    }
    assert_eq!(seen, expected);
    assert!(db.store.dead_letter(&db.outbox, 0).await.unwrap().is_none());
}

/// Returns a dead letter's line in a backup file.
fn entry_of(letter: &DeadLetter) -> ImportEntry {
    ImportEntry::of(letter.clone()).unwrap()
}

/// A file may contain anything. Values that no table can hold are refused with a reason, not with a
/// database error, so that the other entries can be imported. Values that only some stores hold are
/// covered by the tests of exports.
pub async fn an_import_refuses_what_no_table_could_hold(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let sound = entry_of(&one_dead_letter(&db, &relay, order(1)).await);
    let text = |text: &str| text.to_owned();
    let entry = || ImportEntry { original_id: 1_000, ..sound.clone() };
    let far = "+12026-01-01T00:00:00Z".parse().unwrap();
    for (bad, word) in [
        (ImportEntry { event_id: "x".repeat(37), ..entry() }, "event_id"),
        (ImportEntry { event_type: "x".repeat(201), ..entry() }, "200 characters"),
        (ImportEntry { headers: Some(text("[1]")), ..entry() }, "JSON object"),
        (ImportEntry { content_hash: Some("0".repeat(65)), ..entry() }, "content_hash"),
        (ImportEntry { failed_at: far, ..entry() }, "years"),
    ] {
        let refused = db.store.import(&db.outbox, &bad, "ann").await.unwrap_err();
        assert!(matches!(&refused, StoreError::Refused(why) if why.contains(word)), "{refused:?}");
    }
    let restored = db.store.import(&db.outbox, &entry(), "ann").await.unwrap();
    assert_eq!(restored, Imported::Restored);
}

/// An import restores an event that is nowhere else, and does not touch live or known ones.
pub async fn an_import_restores_only_what_is_neither_live_nor_known(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = order(1).request_id("r").header("x", "ü").max_retries(3);
    let dead = one_dead_letter(&db, &relay, event).await;
    let entry = entry_of(&dead);
    let import =
        async |entry: &ImportEntry| db.store.import(&db.outbox, entry, "ann").await.unwrap();
    assert_eq!(import(&entry).await, Imported::Known);

    let live = db.append_orders(1).await[0];
    let claimed = db.claim(&relay, 10).await;
    let marked = [death(&claimed[0], DeadReason::Rejected, "no")];
    db.store.mark_dead(&db.outbox, &relay, &marked).await.unwrap();
    let of_live =
        ImportEntry { original_id: live, event_id: claimed[0].event_id.clone(), ..entry.clone() };
    assert_eq!(import(&of_live).await, Imported::Live, "maintenance moves it");
    assert_eq!(originals(&db.store.move_marked(&db.outbox, 10).await.unwrap()), [live]);
    assert_eq!(import(&of_live).await, Imported::Known);
    assert!(db.trail().await.is_empty(), "nothing was done so far");

    db.execute(&format!("DELETE FROM {}_dlq WHERE id = {}", db.outbox.table(), dead.id)).await;
    assert_eq!(import(&entry).await, Imported::Restored);
    assert_eq!(import(&entry).await, Imported::Known, "once");
    let found = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await.unwrap().rows;
    let restored = found.iter().find(|l| l.original_id == dead.original_id).unwrap();
    let restored = letter(&db, restored.id).await;
    assert_eq!(entry_of(&restored), entry, "nothing was lost on the way");
    assert!(!restored.resolved);
    let fresh = db.store.retry(&db.outbox, restored.id, "ann", "").await.unwrap();
    assert_eq!(ids(&db.claim(&relay, 10).await), [fresh], "and it can be sent again");
    db.assert_balanced().await;
}

/// Row ids belong to a database: a dead letter from another one may have a row id that is in use.
pub async fn an_imported_letter_with_the_row_id_of_another_event_hides_none(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dead = one_dead_letter(&db, &relay, order(1)).await;
    let id = db.append_orders(1).await[0];
    let foreign = ImportEntry { original_id: id, ..entry_of(&dead) };
    let imported = db.store.import(&db.outbox, &foreign, "ann").await.unwrap();
    assert_eq!(imported, Imported::Restored, "what lives under that id is another event");
    let claimed = db.claim(&relay, 10).await;
    assert_eq!(ids(&claimed), [id]);
    let death_of = |event| [death(event, DeadReason::Rejected, "no")];
    db.store.settle_dead(&db.outbox, &relay, &death_of(&claimed[0])).await.unwrap();

    let marked_id = db.append_orders(1).await[0];
    let foreign = ImportEntry { original_id: marked_id, ..foreign };
    assert_eq!(db.store.import(&db.outbox, &foreign, "ann").await.unwrap(), Imported::Restored);
    let marked = db.claim(&relay, 10).await;
    db.store.mark_dead(&db.outbox, &relay, &death_of(&marked[0])).await.unwrap();
    assert_eq!(originals(&db.store.move_marked(&db.outbox, 10).await.unwrap()), [marked_id]);

    let found = db.store.dead_letters(&db.outbox, &DlqFilter::default(), FIRST).await.unwrap().rows;
    let has = |id: i64, event_id: &str| {
        found.iter().any(|letter| letter.original_id == id && letter.event_id == event_id)
    };
    assert!(has(id, &claimed[0].event_id) && has(id, &dead.event_id), "{found:#?}");
    assert!(has(marked_id, &marked[0].event_id), "{found:#?}");
    db.assert_balanced().await;
}

/// A file may contain errors as the relay saw them, before a column cut them.
pub async fn an_import_takes_any_error_text(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let dead = one_dead_letter(&db, &relay, order(1)).await;
    let entry = ImportEntry {
        original_id: dead.original_id + 1_000,
        error_message: "nul \0 and length".repeat(1_000),
        error_detail: Some("🦀\0".repeat(100_000)),
        ..entry_of(&dead)
    };
    let imported = db.store.import(&db.outbox, &entry, "ann").await.unwrap();
    assert_eq!(imported, Imported::Restored);
}

/// The attempts of an event stay readable after it has become a dead letter, by event id.
pub async fn attempts_stay_readable_after_the_event_died(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append(&[order(1)]).await;
    let mut cursor = Cursor::new();
    let claimed = db.claim_on(&relay, 1, &mut cursor).await;
    let failures = [failure(&claimed[0], Duration::ZERO, "first")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    let claimed = db.claim_on(&relay, 1, &mut cursor).await;
    db.move_to_dlq(&relay, &claimed[0], "second").await;
    let attempts = db.store.attempts(&db.outbox, &claimed[0].event_id).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].error, "first");
}
