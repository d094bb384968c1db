//! Reused ids: after a `TRUNCATE` that restarts them, a restore, or a fail-over that lost the last
//! commits. An id that a relay remembers then belongs to another event.

use std::time::Duration;

use postrider::{NewEvent, Outbox};
use postrider_store::{
    Canary, Cursor, DeadReason, Dedupe, Delivery, Event, EventFilter, JobRunner, JobState, JobWork,
    LaneRead, LaneSet, Lease, NewJob, OnSuccess, Result, Retention, StoreError, StoreKind,
};

use super::jobs::retry_all;
use super::steps::{death, deferral, failure, rows};
use crate::{TestDb, eventually};

/// A settle by position needs at least a hundred rows; each other way of settling has its own rows.
const EVENTS: u64 = 140;
const PLACED: usize = 40;

/// Empties the table and restarts its ids.
async fn begin_ids_again(db: &TestDb) {
    let table = db.outbox.table();
    match db.store.kind() {
        StoreKind::Postgres => {
            db.execute(&format!("TRUNCATE {table} RESTART IDENTITY")).await;
        }
        StoreKind::Mysql => {
            db.execute(&format!("TRUNCATE TABLE {table}")).await;
        }
        StoreKind::Sqlite => {
            db.execute(&format!("DELETE FROM {table}")).await;
            db.execute(&format!("DELETE FROM sqlite_sequence WHERE name = '{table}'")).await;
        }
    }
}

/// Sets the id counter back.
async fn set_last_id(db: &TestDb, last_id: i64) {
    let table = db.outbox.table();
    let statement = match db.store.kind() {
        StoreKind::Postgres => format!("SELECT setval('{table}_id_seq', {last_id})"),
        StoreKind::Mysql => format!("ALTER TABLE {table} AUTO_INCREMENT = {}", last_id + 1),
        StoreKind::Sqlite => {
            format!("UPDATE sqlite_sequence SET seq = {last_id} WHERE name = '{table}'")
        }
    };
    db.execute(&statement).await;
}

async fn read(db: &TestDb, known: &[i64], cursor: &mut Cursor) -> Result<LaneRead> {
    cursor.observed_at = None;
    db.store.read_lanes(&db.outbox, LaneSet::ALL, known, &[], rows(1_000), cursor).await
}

fn ids(found: &LaneRead) -> Vec<i64> {
    found.rows.iter().map(|row| row.event.id).collect()
}

/// Returns events of a relay, and others with the same ids: only read, as in mode `lanes`, or
/// claimed.
async fn old_and_new(db: &TestDb, relay: &Lease, claimed: bool) -> (Vec<Event>, Vec<Event>) {
    let mut lives = Vec::new();
    for _ in 0..2 {
        begin_ids_again(db).await;
        db.append_orders(EVENTS).await;
        lives.push(match claimed {
            true => db.claim(relay, 1_000).await,
            false => {
                let found = read(db, &[], &mut Cursor::new()).await.unwrap();
                found.rows.into_iter().map(|row| row.event).collect()
            }
        });
    }
    let (new, old) = (lives.pop().unwrap(), lives.pop().unwrap());
    let known = |events: &[Event]| -> Vec<_> {
        events.iter().map(|event| (event.id, event.version, event.place)).collect()
    };
    assert_eq!(old.len() as u64, EVENTS);
    assert_eq!(known(&old), known(&new), "only the identity tells them apart");
    (old, new)
}

/// Returns how many rows each way of settling changes, each with a few of these events.
async fn settle_in_every_way(
    db: &TestDb,
    relay: &Lease,
    child: &Outbox,
    events: &[Event],
) -> Vec<u64> {
    let (store, outbox) = (&db.store, &db.outbox);
    let to_child = |event| Delivery { branches: 1, ..Delivery::from(event) };
    let copied: Vec<_> = events[..3].iter().map(to_child).collect();
    let answer = Some("the answer".to_owned());
    let answered = [Delivery { response: answer, ..Delivery::from(&events[3]) }];
    let failed: Vec<_> = events[4..7].iter().map(|e| failure(e, Duration::ZERO, "no")).collect();
    let death = |e| death(e, DeadReason::Rejected, "no");
    let dead: Vec<_> = events[7..10].iter().map(death).collect();
    let marked: Vec<_> = events[10..13].iter().map(death).collect();
    let deferred: Vec<_> = events[13..16].iter().map(|e| deferral(e, Duration::ZERO)).collect();
    let child = std::slice::from_ref(child);
    let (delete, archive) = (OnSuccess::Delete, OnSuccess::Archive);
    vec![
        db.deliver(relay, &events[PLACED..], delete).await,
        db.deliver(relay, &events[16..20], delete).await,
        db.deliver(relay, &events[20..30], archive).await,
        store.settle_delivered(outbox, relay, &answered, archive).await.unwrap().rows,
        store.fan_out(outbox, relay, &copied, child, delete).await.unwrap().rows,
        store.settle_failed(outbox, relay, &failed).await.unwrap().rows,
        store.settle_dead(outbox, relay, &dead).await.unwrap().rows,
        store.mark_dead(outbox, relay, &marked).await.unwrap().rows,
        store.release(outbox, relay, &deferred).await.unwrap().rows,
    ]
}

/// The answer to an old event does not apply to the new one with the same id, version and position:
/// the new one is not removed, failed, moved to the dead letters or released.
pub async fn a_settle_for_an_event_whose_id_came_again_changes_nothing(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let child = db.add_outbox(Dedupe::default()).await;
    for claimed in [false, true] {
        let (old, new) = old_and_new(&db, &relay, claimed).await;
        assert_eq!(settle_in_every_way(&db, &relay, &child, &old).await, [0; 9], "{claimed}");
        for table in ["_archive", "_dlq", "_attempts"] {
            assert_eq!(db.count(table).await, 0, "{table}");
        }
        let copies = format!("SELECT count(*) FROM {}", child.table());
        assert_eq!(db.integer(&copies).await, 0);
        let answers =
            format!("SELECT count(*) FROM {} WHERE response IS NOT NULL", db.outbox.table());
        assert_eq!(db.integer(&answers).await, 0);
        assert_eq!(db.deliver(&relay, &new, OnSuccess::Delete).await, EVENTS, "as it was read");
    }
}

/// Events archived earlier stay in the archive, and the next clean-up removes only old ones.
pub async fn an_event_whose_id_came_again_is_archived_beside_the_old_one(db: TestDb) {
    let relay = db.relay("relay-a").await;
    for life in 1..=2 {
        begin_ids_again(&db).await;
        db.append_orders(3).await;
        let events = db.claim(&relay, 10).await;
        assert_eq!(db.deliver(&relay, &events, OnSuccess::Archive).await, 3, "life {life}");
        // At different times: the clock of one database has a resolution of milliseconds.
        let older = match db.store.kind() {
            StoreKind::Postgres => "delivered_at - interval '2 days'",
            StoreKind::Mysql => "delivered_at - INTERVAL 2 DAY",
            StoreKind::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', delivered_at, '-2 days')",
        };
        if life == 1 {
            let archive = format!("{}_archive", db.outbox.table());
            db.execute(&format!("UPDATE {archive} SET delivered_at = {older}")).await;
        }
    }
    assert_eq!(db.count("_archive").await, 6);
    let (archive, dedupe) = (Duration::from_secs(24 * 3_600), Dedupe::default());
    let retention = Retention { archive, resolved: archive, dedupe, chunk: 2 };
    db.store.clean_up(&db.outbox, &retention).await.unwrap();
    assert_eq!(db.count("_archive").await, 3, "those of the second life");
}

/// Of a batch, only the events that are still the same are settled.
pub async fn of_a_batch_the_events_that_are_still_themselves_are_settled(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append_orders(EVENTS).await;
    let found = read(&db, &[], &mut Cursor::new()).await.unwrap();
    let events: Vec<Event> = found.rows.into_iter().map(|row| row.event).collect();
    let (table, other) = (db.outbox.table(), events[7].id);
    let identity = "00000000-0000-4000-8000-000000000001";
    db.execute(&format!("UPDATE {table} SET event_id = '{identity}' WHERE id = {other}")).await;
    assert_eq!(db.deliver(&relay, &events, OnSuccess::Delete).await, EVENTS - 1);
    assert_eq!(db.column(other, "event_id").await.as_deref(), Some(identity));
    db.assert_balanced().await;
}

/// Ids that went back cause one error; the same cursor then starts at the first row.
pub async fn ids_that_went_back_are_noticed(db: TestDb) {
    let relay = db.relay("relay-a").await;
    for appended_since in [0, 2] {
        begin_ids_again(&db).await;
        let before = db.append_orders(5).await;
        let (mut reader, mut claimer) = (Cursor::new(), Cursor::new());
        assert_eq!(ids(&read(&db, &[], &mut reader).await.unwrap()), before);
        assert_eq!(db.claim_on(&relay, 100, &mut claimer).await.len(), 5);
        begin_ids_again(&db).await;
        let since = db.append_orders(appended_since).await;

        let noticed = read(&db, &[], &mut reader).await;
        assert!(matches!(noticed, Err(StoreError::HistoryChanged(_))), "{noticed:?}");
        assert_eq!(ids(&read(&db, &[], &mut reader).await.unwrap()), since);

        claimer.observed_at = None;
        let noticed = db.store.claim(&db.outbox, &relay, rows(100), &mut claimer).await;
        assert!(matches!(noticed, Err(StoreError::HistoryChanged(_))), "{noticed:?}");
        let claimed = db.claim_on(&relay, 100, &mut claimer).await;
        assert_eq!(super::steps::ids(&claimed), since, "nothing was claimed with the error");
    }
}

/// Ids that no reader has seen may be assigned again, for example after a crash: that is not an
/// error, and the reader, whose cursor was before them, does not skip the new rows.
pub async fn ids_that_nobody_saw_may_come_again_and_are_read_at_once(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let seen = db.append_orders(3).await;
    let (mut cursor, mut claimer) = (Cursor::new(), Cursor::new());
    assert_eq!(ids(&read(&db, &[], &mut cursor).await.unwrap()), seen);
    let unseen = db.append_orders(5).await;
    db.execute(&format!("DELETE FROM {} WHERE id > {}", db.outbox.table(), seen[2])).await;
    eventually("the reader is behind all ids", async || {
        assert_eq!(ids(&read(&db, &seen, &mut cursor).await.unwrap()), [0_i64; 0]);
        claimer.observed_at = None;
        db.claim_on(&relay, 100, &mut claimer).await;
        (cursor.low.min(claimer.low) >= unseen[4]).then_some(())
    })
    .await;
    set_last_id(&db, seen[2]).await;
    let again = db.append_orders(2).await;
    assert_eq!(again, unseen[..2], "they come again");
    assert_eq!(ids(&read(&db, &seen, &mut cursor).await.unwrap()), again);
    claimer.observed_at = None;
    assert_eq!(super::steps::ids(&db.claim_on(&relay, 100, &mut claimer).await), again);
}

/// The archive holds other events under the ids of those that a replay selects: each matching event
/// is sent once, no other is sent, and the audit trail names the sent ones. Steps of one entry end
/// between two events with the same id.
pub async fn a_replay_sends_what_fits_of_events_whose_ids_came_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let lives = [["Paid", "Placed", "Paid"], ["Paid", "Paid", "Shipped"]];
    for (life, kinds) in lives.iter().enumerate() {
        begin_ids_again(&db).await;
        let event = |(n, kind): (usize, &&str)| NewEvent::new("order", format!("{n}"), *kind, "{}");
        db.append(&kinds.iter().enumerate().map(event).collect::<Vec<_>>()).await;
        let claimed = db.claim(&relay, 10).await;
        assert_eq!(claimed.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 2, 3]);
        db.deliver(&relay, &claimed, OnSuccess::Archive).await;
        let hour = Duration::from_secs(3_600);
        assert_eq!(
            db.age("orders_outbox_archive", "delivered_at", hour, "1 = 1").await,
            3 * (life as u64 + 1)
        );
    }
    let filter = EventFilter { event_type: Some("Paid".to_owned()), ..EventFilter::default() };
    let job = NewJob {
        work: JobWork::Replay { filter, into: None },
        operator: "ann".to_owned(),
        note: String::new(),
        rate: None,
        canary: None,
        request_key: None,
    };
    let made = db.store.create_job(&db.outbox, &job).await.unwrap();
    let runner = JobRunner::new(db.store.clone(), vec![db.outbox.clone()], "test-host").chunk(1);
    let done = runner.run(made.id, &mut |_| {}).await.unwrap().unwrap();
    assert_eq!((done.state, done.done_count), (JobState::Done, 4), "{:?}", done.reason);
    let copies = db.claim(&relay, 10).await;
    let mut sent: Vec<_> =
        copies.iter().map(|event| (&*event.event_type, &*event.event_id)).collect();
    sent.sort_unstable();
    sent.dedup();
    assert_eq!(sent.len(), 4, "each once: {sent:?}");
    assert!(sent.iter().all(|(kind, _)| *kind == "Paid"), "{sent:?}");
    let trail = db.trail().await;
    assert_eq!(trail.iter().filter(|entry| entry.action == "event.replay").count(), 4);
}

/// The canary events of a job were delivered, and others have their ids by now, live or dead: the
/// job continues. An older program stored only the ids.
pub async fn a_canary_is_not_another_event_that_has_its_id(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let job = NewJob { canary: Some(Canary { count: 1, within_s: 600 }), ..retry_all() };
    for others_die in [false, true] {
        begin_ids_again(&db).await;
        db.move_many_to_dlq(&relay, 2).await;
        let job = db.taken_job(&job).await;
        assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Canary);
        assert_eq!(
            db.step(&job, "runner-a", 10).await.unwrap().state,
            JobState::Canary,
            "it waits"
        );
        let first = db.claim(&relay, 10).await;
        assert_eq!(db.deliver(&relay, &first, OnSuccess::Delete).await, 1);

        begin_ids_again(&db).await;
        let others = db.append_orders(first[0].id.unsigned_abs()).await;
        assert_eq!(others.last(), Some(&first[0].id), "its id came again");
        if others_die {
            let claimed = db.claim(&relay, 10).await;
            let dead: Vec<_> =
                claimed.iter().map(|other| death(other, DeadReason::Rejected, "no")).collect();
            db.store.settle_dead(&db.outbox, &relay, &dead).await.unwrap();
        }
        let looked = db.step(&job, "runner-a", 10).await.unwrap();
        assert_eq!(looked.state, JobState::Running, "{others_die}: {:?}", looked.reason);
        db.store.stop_job(job.id, "ann", "enough").await.unwrap();
    }
    let job = db.taken_job(&job).await;
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Canary);
    let first = db.claim(&relay, 10).await;
    let noted = format!("UPDATE postrider_jobs SET canary_ids = '[{}]'", first[0].id);
    db.execute(&noted).await;
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Canary, "it waits");
    db.deliver(&relay, &first, OnSuccess::Delete).await;
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Running);
}
