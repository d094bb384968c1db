//! Counts that cannot be saved: each is dead-lettered alone, and can be imported.

use postrider_relay::{
    Relay,
    delivery::backup::{DeadBatch, read},
};
use postrider_store::Application;
use postrider_testkit::{
    TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually, on_each_store,
    relay::{RecordedAlerts, RunningRelay, quick_config},
};
use uuid::Uuid;

on_each_store!(
    a_field_that_holds_no_count_is_dead_lettered_alone,
    a_count_that_the_table_refuses_is_dead_lettered_alone_and_can_be_imported,
    a_compensation_that_fails_lands_in_the_file_and_can_be_imported,
    without_a_backup_file_the_batch_stays_where_it_is,
    a_table_that_is_missing_is_waited_for,
    a_batch_that_redis_lost_is_told_and_shows_in_the_ledger,
);

struct Scene {
    test: TestBuffer,
    folder: TempFolder,
    alerts: RecordedAlerts,
}

impl Scene {
    async fn open(db: &TestDb) -> Option<Self> {
        let test = TestBuffer::open(db, "REDIS_URL", "buffer_poison").await?;
        Some(Self { test, folder: TempFolder::new(), alerts: RecordedAlerts::new(false) })
    }

    fn start(&self, db: &TestDb) -> RunningRelay {
        let relay = Relay::new(db.store.clone(), quick_config(&self.folder));
        let relay = relay.buffer(self.test.config()).alert_channel(self.alerts.subscribed());
        RunningRelay::start(relay)
    }

    fn dead(&self) -> Vec<DeadBatch> {
        let file = quick_config(&self.folder).backup_folder.join("dead-letters.jsonl");
        let contents = read(&file).unwrap();
        assert!(contents.damaged.is_empty(), "{:?}", contents.damaged);
        contents.batches
    }

    async fn until_told(&self, title: &str) {
        eventually(title, async || {
            self.alerts.sent().iter().any(|message| message.title.contains(title)).then_some(())
        })
        .await;
    }
}

async fn a_field_that_holds_no_count_is_dead_lettered_alone(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    let key = scene.test.buffer.key().to_owned();
    let good: Vec<String> = (0..50).map(|n| format!("post-{n}")).collect();
    let counts: Vec<_> = good.iter().map(|field| (field.as_str(), 2)).collect();
    scene.test.buffer.increment_all(&counts).await.unwrap();
    for (field, value) in [("x", "abc"), ("y", "-3"), ("z", "1.5"), ("w", "9223372036854775808")] {
        let _: i64 = scene.test.ask(&["HSET", &key, field, value]).await;
    }
    let relay = scene.start(&db);
    let look = scene.test.until_empty().await;
    assert_eq!((saved(&db).await, look.ledger.dead), (100, 4));
    scene.until_told("Dead letter of buffer").await;
    let mut fields: Vec<_> = scene.dead().iter().map(|dead| dead.fields.clone()).collect();
    fields.sort_by_key(|fields| format!("{fields:?}"));
    assert_eq!(fields.len(), 4);
    assert!(fields.iter().all(|fields| fields.len() == 1), "{fields:?}");
    assert!(scene.dead()[0].batch().is_err(), "an import says why it cannot");
    relay.stop().await;
    scene.test.assert_balanced(&db).await;
}

async fn a_count_that_the_table_refuses_is_dead_lettered_alone_and_can_be_imported(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    db.execute(&format!("INSERT INTO likes VALUES ('full', {})", i64::MAX - 5)).await;
    let good: Vec<String> = (0..50).map(|n| format!("post-{n}")).collect();
    let mut counts: Vec<_> = good.iter().map(|field| (field.as_str(), 2)).collect();
    counts.push(("full", 7));
    scene.test.buffer.increment_all(&counts).await.unwrap();
    let relay = scene.start(&db);
    let look = scene.test.until_empty().await;
    assert_eq!(look.ledger.dead, 1);
    assert_eq!(db.integer("SELECT SUM(total) FROM likes WHERE post <> 'full'").await, 100);
    relay.stop().await;
    scene.test.assert_balanced(&db).await;
    let dead = scene.dead().remove(0).batch().unwrap();
    let refused = db.store.import_batch(&dead, &scene.test.target, "ann").await.unwrap();
    assert!(matches!(refused, Application::Refused(_)), "still full: {refused:?}");
    db.execute("UPDATE likes SET total = 0 WHERE post = 'full'").await;
    let imported = db.store.import_batch(&dead, &scene.test.target, "ann").await.unwrap();
    assert_eq!(imported, Application::Applied);
    assert_eq!(saved(&db).await, 107);
}

/// A batch that was cancelled, and whose counts cannot be returned to the buffer either.
async fn a_compensation_that_fails_lands_in_the_file_and_can_be_imported(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    let buffer = &scene.test.buffer;
    let dead = db.relay("dead").await;
    buffer.increment_all(&[("a", 3), ("b", 4)]).await.unwrap();
    let batch = buffer.move_batch(Uuid::new_v4(), &dead.relay_id, 10).await.unwrap();
    db.store.cancel_batch(buffer.name(), batch.id, 2).await.unwrap();
    let huge = (1_i64 << 53).to_string();
    let _: i64 = scene.test.ask(&["HSET", buffer.key(), "a", &huge]).await;
    let observer = db.relay("observer").await;
    db.fence(&observer, &dead).await;
    let relay = scene.start(&db);
    scene.test.until_empty().await;
    relay.stop().await;
    assert_eq!(saved(&db).await, 1 << 53, "what was in the buffer is saved");
    scene.test.assert_balanced(&db).await;
    let dead = scene.dead();
    assert!(dead[0].error.contains("compensation failed"), "{}", dead[0].error);
    let dead = dead[0].batch().unwrap();
    for _ in 0..2 {
        db.store.import_batch(&dead, &scene.test.target, "ann").await.unwrap();
        assert_eq!(saved(&db).await, (1 << 53) + 7);
    }
}

/// The last copy is never deleted.
async fn without_a_backup_file_the_batch_stays_where_it_is(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    let folder = quick_config(&scene.folder).backup_folder;
    // A file where the folder should be.
    std::fs::write(&folder, "in the way").unwrap();
    let key = scene.test.buffer.key().to_owned();
    let _: i64 = scene.test.ask(&["HSET", &key, "x", "abc", "y", "2"]).await;
    let relay = scene.start(&db);
    scene.until_told("cannot be saved").await;
    eventually("the other count is saved", async || (saved(&db).await == 2).then_some(())).await;
    let look = scene.test.buffer.look().await.unwrap();
    assert_eq!((look.ledger.dead, look.fields + look.waiting()), (0, 1), "{look:?}");
    std::fs::remove_file(&folder).unwrap();
    scene.test.until_empty().await;
    assert_eq!(scene.dead().len(), 1);
    relay.stop().await;
    scene.test.assert_balanced(&db).await;
}

/// No entry is the cause, so none is dead-lettered.
async fn a_table_that_is_missing_is_waited_for(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    let relay = scene.start(&db);
    scene.test.buffer.increment("a", 1).await.unwrap();
    scene.test.until_empty().await;
    db.execute("ALTER TABLE likes RENAME TO hidden").await;
    scene.test.buffer.increment_all(&[("a", 1), ("b", 1)]).await.unwrap();
    scene.until_told("cannot be saved").await;
    db.execute("ALTER TABLE hidden RENAME TO likes").await;
    let look = scene.test.until_empty().await;
    assert_eq!((saved(&db).await, look.ledger.dead), (3, 0));
    scene.until_told("is saved again").await;
    relay.stop().await;
    scene.test.assert_balanced(&db).await;
}

/// The key was deleted: nothing can bring it back, but operators are alerted.
async fn a_batch_that_redis_lost_is_told_and_shows_in_the_ledger(db: TestDb) {
    let Some(scene) = Scene::open(&db).await else { return };
    let (buffer, dead) = (&scene.test.buffer, db.relay("dead").await);
    buffer.increment("a", 3).await.unwrap();
    let batch = buffer.move_batch(Uuid::new_v4(), &dead.relay_id, 10).await.unwrap();
    let _: i64 = scene.test.ask(&["DEL", &format!("{}:sync:{}", buffer.key(), batch.id)]).await;
    let observer = db.relay("observer").await;
    db.fence(&observer, &dead).await;
    let relay = scene.start(&db);
    scene.until_told("lost a batch").await;
    let look = scene.test.until_empty().await;
    assert_eq!((look.ledger.moved, look.ledger.applied), (1, 0), "the ledger differs by one entry");
    relay.stop().await;
}
