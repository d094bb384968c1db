//! Lists, counts and groups that return in time.

use std::time::Duration;

use postrider::NewEvent;
use postrider_store::{
    AuditFilter, CountLimit, Counted, Cursor, DeadReason, DlqFilter, EventFilter, OnSuccess, Page,
    PauseKind, Status, fingerprint,
};

use super::steps::{death, failure, order};
use crate::TestDb;

/// A page of large rows is small: lists contain the sizes of payloads, and `show` reads the
/// payloads.
pub async fn lists_have_sizes_instead_of_payloads(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let text = "ü".repeat(1_000);
    let event = |n: &str| NewEvent::new("order", n, "Placed", text.clone());
    db.append(&["1", "2", "3"].map(event)).await;
    let claimed = db.claim(&relay, 2).await;
    db.deliver(&relay, &claimed[..1], OnSuccess::Archive).await;
    let dead = db.move_to_dlq(&relay, &claimed[1], "no").await;
    let page = Page::first(5);
    for status in [None, Some(Status::Completed)] {
        let filter = EventFilter { status, ..EventFilter::default() };
        let listed = db.store.events(&db.outbox, &filter, page).await.unwrap().rows;
        assert_eq!(listed.len(), 1, "{status:?}");
        assert_eq!((&listed[0].payload, listed[0].payload_bytes), (&None, 2_000));
        let shown = db.store.event(&db.outbox, listed[0].id).await.unwrap().unwrap();
        assert_eq!((shown.payload.as_deref(), shown.payload_bytes), (Some(text.as_str()), 2_000));
    }
    let listed = db.store.dead_letters(&db.outbox, &DlqFilter::default(), page).await.unwrap();
    assert_eq!((&listed.rows[0].payload, listed.rows[0].payload_bytes), (&None, 2_000));
    let shown = db.store.dead_letter(&db.outbox, dead).await.unwrap().unwrap();
    assert_eq!((shown.payload.as_deref(), shown.payload_bytes), (Some(text.as_str()), 2_000));
}

/// So short that one step uses it up.
const NO_TIME: Duration = Duration::ZERO;
/// Number of rows of a table that takes several steps.
const MANY: u64 = 2_500;

/// A rare event among many: each search is short, reports that it is incomplete, and where to
/// continue.
pub async fn a_search_whose_time_is_over_says_where_to_go_on(db: TestDb) {
    let wanted = db.append(&[NewEvent::new("order", "x", "Rare", "{}")]).await;
    for _ in 0..MANY / 500 {
        db.append_orders(500).await;
    }
    let filter = EventFilter { event_type: Some("Rare".to_owned()), ..EventFilter::default() };
    let (mut looks, mut found) = (0, Vec::new());
    let mut page = Page::first(10).within(NO_TIME);
    loop {
        let listed = db.store.events(&db.outbox, &filter, page).await.unwrap();
        found.extend(listed.rows.iter().map(|event| event.id));
        looks += 1;
        match listed.next {
            Some(next) => {
                assert!(!listed.complete, "not full and not at the end");
                page = page.below(Some(next));
            }
            None => {
                assert!(listed.complete);
                break;
            }
        }
    }
    assert!(looks > 2, "{looks}");
    assert_eq!(found, wanted);
    let in_one_go = page.below(None).within(Duration::MAX);
    let listed = db.store.events(&db.outbox, &filter, in_one_go).await.unwrap();
    assert_eq!((listed.rows.len(), listed.complete, listed.next), (1, true, None));
}

/// A full page is complete, whatever its budget, and the next one continues below it.
pub async fn a_full_page_is_complete(db: TestDb) {
    let appended = db.append_orders(5).await;
    let page = Page::first(3).within(NO_TIME);
    let listed = db.store.events(&db.outbox, &EventFilter::default(), page).await.unwrap();
    assert!(listed.complete);
    assert_eq!(listed.next, Some(appended[2]));
    let age = chrono::Utc::now() - listed.as_of;
    assert!(age.num_seconds().abs() < 600, "the database's clock: {age}");
    let empty = EventFilter { status: Some(Status::Completed), ..EventFilter::default() };
    let listed = db.store.events(&db.outbox, &empty, page).await.unwrap();
    assert_eq!((listed.rows.len(), listed.complete, listed.next), (0, true, None));
}

/// Counts end at their limit or budget, and report that.
pub async fn a_count_says_when_there_are_more(db: TestDb) {
    for _ in 0..MANY / 500 {
        db.append_orders(500).await;
    }
    let count = async |filter: EventFilter, limit: CountLimit| {
        db.store.event_count(&db.outbox, &filter, limit).await.unwrap()
    };
    let all = EventFilter::default();
    let exact = Counted { count: 2_500, at_least: false };
    assert_eq!(count(all.clone(), CountLimit::NONE).await, exact);
    let few = CountLimit { count_max: 100, budget: Duration::MAX };
    assert_eq!(count(all.clone(), few).await, Counted { count: 100, at_least: true });
    let no_time = CountLimit { budget: NO_TIME, ..CountLimit::default() };
    let cut = count(all, no_time).await;
    assert!(cut.at_least && cut.count < 2_500, "{cut:?}");
    let archived = EventFilter { status: Some(Status::Completed), ..EventFilter::default() };
    assert_eq!(count(archived, CountLimit::NONE).await, Counted::default());
}

/// Event id, request id, error and times can be filtered too.
pub async fn events_are_found_by_identity_request_error_and_time(db: TestDb) {
    let mut ids = Vec::new();
    for event in [order(1).request_id("r-1"), order(2), order(3)] {
        ids.extend(db.append(&[event]).await);
    }
    db.age(db.outbox.table(), "created_at", Duration::from_secs(7_200), "id = 1").await;
    let relay = db.relay("relay-a").await;
    let claimed = db.claim_on(&relay, 3, &mut Cursor::new()).await;
    let failures = [failure(&claimed[1], Duration::from_secs(60), "Connection RESET by peer")];
    db.store.settle_failed(&db.outbox, &relay, &failures).await.unwrap();
    db.deliver(&relay, &claimed[2..], OnSuccess::Archive).await;

    let some = |text: &str| Some(text.to_owned());
    let any = EventFilter::default;
    let hour_ago = Some(chrono::Utc::now() - chrono::Duration::hours(1));
    let archived = EventFilter { status: Some(Status::Completed), ..any() };
    let cases = [
        (EventFilter { event_id: some(&claimed[0].event_id), ..any() }, vec![ids[0]]),
        (EventFilter { event_id: some("no identity"), ..any() }, vec![]),
        (EventFilter { request_id: some("r-1"), ..any() }, vec![ids[0]]),
        (EventFilter { request_id: some("r-2"), ..any() }, vec![]),
        (EventFilter { error: some("reset BY"), ..any() }, vec![ids[1]]),
        (EventFilter { error: some("%"), ..any() }, vec![]),
        (EventFilter { created_since: hour_ago, ..any() }, vec![ids[1]]),
        (EventFilter { created_until: hour_ago, ..any() }, vec![ids[0]]),
        (EventFilter { delivered_since: hour_ago, ..any() }, vec![]),
        (archived.clone(), vec![ids[2]]),
        (EventFilter { delivered_since: hour_ago, ..archived.clone() }, vec![ids[2]]),
        (EventFilter { delivered_until: hour_ago, ..archived.clone() }, vec![]),
        (EventFilter { error: some("x"), ..archived.clone() }, vec![]),
        (EventFilter { event_id: some(&claimed[2].event_id), ..archived }, vec![ids[2]]),
    ];
    for (filter, expected) in cases {
        let page = Page::first(10).within(Duration::MAX);
        let found = db.store.events(&db.outbox, &filter, page).await.unwrap().rows;
        let found: Vec<_> = found.iter().map(|event| event.id).collect();
        assert_eq!(found, expected, "{filter:?}");
        let count = db.store.event_count(&db.outbox, &filter, CountLimit::NONE).await.unwrap();
        assert_eq!(count.count, i64::try_from(expected.len()).unwrap(), "{filter:?}");
    }
}

/// One event id may be live, archived and among the dead letters.
pub async fn an_identity_is_found_wherever_it_is(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append(&[order(1), order(2)]).await;
    let claimed = db.claim(&relay, 2).await;
    let letter = db.move_to_dlq(&relay, &claimed[0], "no").await;
    let retried = db.store.retry(&db.outbox, letter, "ann", "again").await.unwrap();
    let look =
        async |id: &str| db.store.event_by_identity(&db.outbox, id, Duration::MAX).await.unwrap();
    let found = look(&claimed[0].event_id).await;
    assert_eq!(found.events.iter().map(|event| event.id).collect::<Vec<_>>(), [retried]);
    assert_eq!(found.dead_letters.iter().map(|dead| dead.id).collect::<Vec<_>>(), [letter]);
    assert!(found.complete);

    let again = db.claim(&relay, 2).await;
    db.deliver(&relay, &again, OnSuccess::Archive).await;
    let found = look(&claimed[0].event_id).await;
    assert_eq!(found.events[0].status, Status::Completed);
    for unknown in ["", "no identity", "00000000-0000-0000-0000-000000000000"] {
        let found = look(unknown).await;
        assert!(found.events.is_empty() && found.dead_letters.is_empty() && found.complete);
    }
}

/// Errors that differ only in values are one group, with the data that an operator needs.
pub async fn dead_letters_are_grouped_by_the_kind_of_their_error(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = |kind: &str| NewEvent::new("order", "1", kind, "{}");
    db.append(&["Placed", "Placed", "Paid", "Placed"].map(event)).await;
    let claimed = db.claim(&relay, 10).await;
    let errors = ["no account 1", "no account 22", "no account 'x'", "HTTP 422"];
    let dead: Vec<_> = claimed
        .iter()
        .zip(errors)
        .map(|(event, error)| death(event, DeadReason::Rejected, error))
        .collect();
    db.store.settle_dead(&db.outbox, &relay, &dead).await.unwrap();
    let dlq = format!("{}_dlq", db.outbox.table());
    db.age(&dlq, "failed_at", Duration::from_secs(7_200), "error_message = 'no account 1'").await;

    let page = Page::first(10).within(Duration::MAX);
    let open = DlqFilter { resolved: Some(false), ..DlqFilter::default() };
    let found = db.store.dead_letter_groups(&db.outbox, &open, page).await.unwrap();
    assert!(found.complete && found.next.is_none());
    let kinds: Vec<_> = found.groups.iter().map(|group| group.sample.as_str()).collect();
    assert_eq!(kinds, ["HTTP 422", "no account 'x'", "no account 22"], "the newest first");
    let accounts = &found.groups[2];
    assert_eq!(accounts.fingerprint, fingerprint(DeadReason::Rejected, "no account 7"));
    assert_eq!(accounts.count, Counted { count: 2, at_least: false });
    assert_eq!(accounts.event_types, [("Placed".to_owned(), 2)]);
    assert_eq!(accounts.reason, DeadReason::Rejected);
    assert!(accounts.last_failed_at - accounts.first_failed_at > chrono::Duration::minutes(119));
    let by_hour: Vec<_> = accounts.by_hour.iter().map(|(_, count)| *count).collect();
    assert_eq!(by_hour, [1, 1], "two hours apart");
    assert!(accounts.by_hour[0].0 < accounts.by_hour[1].0);

    let one = DlqFilter { fingerprint: Some(accounts.fingerprint.clone()), ..open.clone() };
    let letters = db.store.dead_letters(&db.outbox, &one, page).await.unwrap().rows;
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|letter| letter.fingerprint == accounts.fingerprint));
    let first = db.store.dead_letter_groups(&db.outbox, &open, Page::first(1)).await.unwrap();
    assert_eq!(first.groups.len(), 1);
    let none = DlqFilter { resolved: Some(true), ..DlqFilter::default() };
    let none = db.store.dead_letter_groups(&db.outbox, &none, page).await.unwrap();
    assert!(none.groups.is_empty() && none.complete);
}

/// Rows of older programs, and rows that maintenance moved, get their fingerprint from maintenance.
pub async fn upkeep_gives_dead_letters_the_fingerprint_that_they_lack(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append_orders(3).await;
    let claimed = db.claim(&relay, 3).await;
    let marked = [death(&claimed[0], DeadReason::Exhausted, "no account 1")];
    db.store.mark_dead(&db.outbox, &relay, &marked).await.unwrap();
    db.store.move_marked(&db.outbox, 10).await.unwrap();
    for event in &claimed[1..] {
        db.move_to_dlq(&relay, event, "no account 2").await;
    }
    let older =
        format!("UPDATE {}_dlq SET fingerprint = '' WHERE original_id = 2", db.outbox.table());
    assert_eq!(db.execute(&older).await, 1);

    assert_eq!(db.store.fingerprint_dead_letters(&db.outbox, 1).await.unwrap(), 1);
    assert_eq!(db.store.fingerprint_dead_letters(&db.outbox, 10).await.unwrap(), 1);
    assert_eq!(db.store.fingerprint_dead_letters(&db.outbox, 10).await.unwrap(), 0);
    let page = Page::first(10).within(Duration::MAX);
    let letters = db.store.dead_letters(&db.outbox, &DlqFilter::default(), page).await.unwrap();
    let kinds: Vec<_> = letters.rows.iter().map(|letter| letter.fingerprint.clone()).collect();
    let of = |reason| fingerprint(reason, "no account 9");
    let expected = [DeadReason::Rejected, DeadReason::Rejected, DeadReason::Exhausted].map(of);
    assert_eq!(kinds, expected);
}

/// The audit trail is listed page by page, filtered by operator, action, outbox and time.
pub async fn the_audit_trail_is_filtered_and_paged(db: TestDb) {
    for name in ["a", "b", "c"] {
        let operator = if name == "b" { "bob" } else { "ann" };
        db.store.pause(PauseKind::Sink, name, operator, "why").await.unwrap();
    }
    db.store.resume(PauseKind::Sink, "a", "bob", "").await.unwrap();
    db.store.pause(PauseKind::Outbox, "orders", "bob", "").await.unwrap();
    db.age("postrider_audit", "at", Duration::from_secs(7_200), "target = 'c'").await;
    let some = |text: &str| Some(text.to_owned());
    let any = AuditFilter::default;
    let hour_ago = Some(chrono::Utc::now() - chrono::Duration::hours(1));
    let cases = [
        (any(), "orders a c b a"),
        (AuditFilter { operator: some("ann"), ..any() }, "c a"),
        (AuditFilter { action: some("sink.resume"), ..any() }, "a"),
        (AuditFilter { outbox: some("orders"), ..any() }, "orders"),
        (AuditFilter { target: some("a"), ..any() }, "a a"),
        (AuditFilter { since: hour_ago, ..any() }, "orders a b a"),
        (AuditFilter { until: hour_ago, ..any() }, "c"),
        (AuditFilter { operator: some("' OR 1=1 --"), ..any() }, ""),
    ];
    for (filter, expected) in cases {
        let page = Page::first(10).within(Duration::MAX);
        let found = db.store.audit(&filter, page).await.unwrap().rows;
        let targets: Vec<_> = found.iter().map(|entry| entry.target.as_str()).collect();
        assert_eq!(targets.join(" "), expected, "{filter:?}");
    }
    let first = db.store.audit(&any(), Page::first(2)).await.unwrap();
    let second = db.store.audit(&any(), Page::first(9).below(first.next)).await.unwrap();
    let targets: Vec<_> = second.rows.iter().map(|entry| entry.target.as_str()).collect();
    assert_eq!(targets, ["c", "b", "a"]);
}
