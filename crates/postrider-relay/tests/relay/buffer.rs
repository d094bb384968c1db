//! Buffers: what is counted in Redis is saved once.

use std::collections::BTreeMap;

use postrider::buffer::{Adopted, BufferError, BufferSettings};
use postrider_relay::{BufferConfig, Relay};
use postrider_store::{BatchTarget, EventTarget, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually, on_each_store,
    relay::{RunningRelay, quick_config},
};
use uuid::Uuid;

on_each_store!(
    counts_are_added_up_and_saved,
    a_buffer_larger_than_a_batch_is_saved_in_several,
    counts_become_events,
    a_batch_of_a_worker_that_lives_is_left_alone,
);

async fn counts_are_added_up_and_saved(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "counts_are_added_up_and_saved").await
    else {
        return;
    };
    let folder = TempFolder::new();
    let relay = RunningRelay::start(test.relay(&db.store, quick_config(&folder)));
    assert_eq!(test.buffer.increment("a", 2).await.unwrap(), 2);
    test.until_empty().await;
    test.buffer.increment_all(&[("a", 3), ("b", 1), ("a", 4)]).await.unwrap();
    test.until_empty().await;
    assert_eq!(db.integer("SELECT total FROM likes WHERE post = 'a'").await, 9);
    assert_eq!(saved(&db).await, 10);
    relay.stop().await;
    test.assert_balanced(&db).await;
    assert!(db.store.relays().await.unwrap().is_empty(), "retired");
}

async fn a_buffer_larger_than_a_batch_is_saved_in_several(db: TestDb) {
    let name = "a_buffer_larger_than_a_batch_is_saved_in_several";
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", name).await else { return };
    let fields: Vec<String> = (0..2_000).map(|n| format!("post-{n}")).collect();
    let counts: Vec<_> = fields.iter().map(|field| (field.as_str(), 3)).collect();
    test.buffer.increment_all(&counts).await.unwrap();
    let folder = TempFolder::new();
    let mut config = test.config();
    config.fields_max = 300;
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).buffer(config);
    let relay = RunningRelay::start(relay);
    let look = test.until_empty().await;
    assert_eq!((saved(&db).await, look.ledger.moved), (6_000, 2_000));
    assert_eq!(db.integer("SELECT count(*) FROM postrider_buffer_batches").await, 7);
    relay.stop().await;
    test.assert_balanced(&db).await;
}

async fn counts_become_events(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "counts_become_events").await else {
        return;
    };
    let target = BatchTarget::Events(EventTarget {
        outbox: db.outbox.clone(),
        aggregate_type: "post".to_owned(),
        event_type: "Liked".to_owned(),
    });
    let folder = TempFolder::new();
    let config = BufferConfig { target, ..test.config() };
    let relay = Relay::new(db.store.clone(), quick_config(&folder)).buffer(config);
    let relay = RunningRelay::start(relay);
    test.buffer.increment_all(&[("a", 5), ("b", 6)]).await.unwrap();
    test.until_empty().await;
    relay.stop().await;
    let lease = db.relay("reader").await;
    let events = db.claim(&lease, 10).await;
    let ids: Vec<&str> = events.iter().map(|event| event.aggregate_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
}

/// A slow worker is not a dead one.
async fn a_batch_of_a_worker_that_lives_is_left_alone(db: TestDb) {
    let name = "a_batch_of_a_worker_that_lives_is_left_alone";
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", name).await else { return };
    // A lease that no relay considers dead for a minute.
    let slow = db.relay("slow").await;
    test.buffer.increment("a", 5).await.unwrap();
    let batch = test.buffer.move_batch(Uuid::new_v4(), &slow.relay_id, 10).await.unwrap();
    let folder = TempFolder::new();
    let mut config = quick_config(&folder);
    config.lease = std::time::Duration::from_secs(60);
    let relay = RunningRelay::start(test.relay(&db.store, config));
    test.buffer.increment("b", 1).await.unwrap();
    eventually("the other count is saved", async || (saved(&db).await == 1).then_some(())).await;
    let look = test.buffer.look().await.unwrap();
    assert_eq!(look.batches[0].owner, slow.relay_id);
    let observer = db.relay("observer").await;
    db.fence(&observer, &slow).await;
    test.until_empty().await;
    assert_eq!(saved(&db).await, 6, "once it is dead, it is saved");
    let late = test.buffer.adopt(batch.id, &slow.relay_id, &slow.relay_id).await.unwrap();
    assert_eq!(late, Adopted::Done);
    relay.stop().await;
    test.assert_balanced(&db).await;
}

/// Text that looks like a number but that Redis does not accept as one: a script that had started
/// to add would stop there, with some of the counts added and the others not.
#[tokio::test]
async fn a_text_that_only_looks_like_a_count_is_refused_before_anything_is_added() {
    let name = "a_text_that_only_looks_like_a_count";
    let Some(db) = TestDb::open(StoreKind::Sqlite, name).await else { return };
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", name).await else { return };
    let (buffer, key) = (&test.buffer, test.buffer.key());
    let held = async |key: &str| {
        let held: BTreeMap<String, String> = test.ask(&["HGETALL", key]).await;
        held
    };
    for odd in ["+1", "01", "-01", "-0", "1e3", " 1", "1 ", "1.0", "0x1", "", "-"] {
        // First in the buffer, then in the batch that is returned to it.
        for in_batch in [false, true] {
            let (batch_holds, buffer_holds) = if in_batch { (odd, "5") } else { ("5", odd) };
            let _: i64 = test.ask(&["HSET", key, "a", "3", "z", batch_holds]).await;
            let batch = buffer.move_batch(Uuid::new_v4(), "worker", 10).await.unwrap();
            let _: i64 = test.ask(&["HSET", key, "a", "1", "z", buffer_holds]).await;
            let before = held(key).await;
            let refused = buffer.give_back(batch.id, "worker").await.unwrap_err();
            assert!(matches!(refused, BufferError::Refused(_)), "{odd:?}: {refused}");
            if !in_batch {
                let refused = buffer.increment_all(&[("a", 1), ("z", 1)]).await.unwrap_err();
                assert!(matches!(refused, BufferError::Refused(_)), "{odd:?}: {refused}");
            }
            assert_eq!(held(key).await, before, "{odd:?}: nothing was added");
            let left = held(&format!("{key}:sync:{}", batch.id)).await;
            assert_eq!(left.get("z").map(String::as_str), Some(batch_holds), "{odd:?}: it is kept");
            buffer.remove().await.unwrap();
        }
    }
    let _: i64 = test.ask(&["HSET", key, "a", "-4", "z", "0"]).await;
    let batch = buffer.move_batch(Uuid::new_v4(), "worker", 10).await.unwrap();
    buffer.increment_all(&[("a", 6), ("z", 1)]).await.unwrap();
    assert_eq!(buffer.give_back(batch.id, "worker").await.unwrap(), 2);
    let sums = [("a", "2"), ("z", "1")].map(|(field, sum)| (field.to_owned(), sum.to_owned()));
    assert_eq!(held(key).await, BTreeMap::from(sums));
}

#[tokio::test]
async fn what_cannot_be_counted_is_refused_before_it_is_sent() {
    // Nothing listens on this port: whatever is refused was not sent.
    let settings = BufferSettings::new("likes", "redis://127.0.0.1:1");
    let buffer = postrider::buffer::Buffer::new(settings).unwrap();
    for (field, by) in [("a", 0), ("a", -1), ("a", i64::MIN), ("", 1), ("a\0b", 1)] {
        let error = buffer.increment(field, by).await.unwrap_err();
        assert!(matches!(error, BufferError::Invalid(_)), "{field:?} {by}: {error}");
    }
    let error = buffer.increment("a", 1).await.unwrap_err();
    assert!(matches!(error, BufferError::Unreached(_)), "{error}");
}
