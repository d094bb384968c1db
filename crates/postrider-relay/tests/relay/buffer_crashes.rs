//! A worker that dies at each step of a flush: the next one finds out how far it got.
//!
//! The tests make the dead worker's steps one by one, with the calls that a worker makes; then the
//! worker is declared dead and a real one takes over.

use postrider::buffer::{BatchEnd, Buffer, MovedBatch};
use postrider_relay::delivery::backup::{Backup, DeadBatch, RawText, Record, read};
use postrider_store::{Application, Batch, BatchEntry, Lease, StoreKind};
use postrider_testkit::{
    FaultProxy, TempFolder, TestDb,
    buffer::{TestBuffer, saved},
    eventually, on_each_store,
    relay::{RunningRelay, quick_config},
};
use uuid::Uuid;

on_each_store!(
    a_worker_that_died_after_the_move_loses_nothing,
    a_worker_that_died_after_the_commit_counts_nothing_twice,
    a_worker_that_died_after_the_leak_guard_counts_nothing_twice,
    a_batch_that_the_leak_guard_dropped_after_the_commit_is_only_taken_off_the_list,
    a_worker_that_died_after_cancelling_gives_the_counts_back,
    a_worker_that_died_after_splitting_loses_no_part,
    a_worker_that_died_after_the_backup_file_counts_nothing_twice,
    a_worker_that_died_after_recording_a_dead_batch_leaves_it_to_the_import,
    a_step_in_redis_whose_answer_was_lost_is_done_once,
);
mod over_a_network {
    use super::the_answer_to_commit_was_lost_and_nothing_is_counted_twice;
    postrider_testkit::on_each_server!(the_answer_to_commit_was_lost_and_nothing_is_counted_twice,);
}

struct Scene {
    db: TestDb,
    test: TestBuffer,
    folder: TempFolder,
    dead: Lease,
    batch: MovedBatch,
}

/// Prepares 3 + 4 counts in a batch that the worker `dead` has moved, and 1 more in the buffer
/// since.
async fn moved(db: TestDb) -> Option<Scene> {
    let test = TestBuffer::open(&db, "REDIS_URL", "buffer_crashes").await?;
    let dead = db.relay("dead").await;
    test.buffer.increment_all(&[("a", 3), ("b", 4)]).await.unwrap();
    let batch = test.buffer.move_batch(Uuid::new_v4(), &dead.relay_id, 10).await.unwrap();
    assert_eq!(batch.fields.len(), 2);
    test.buffer.increment("a", 1).await.unwrap();
    Some(Scene { db, test, folder: TempFolder::new(), dead, batch })
}

impl Scene {
    async fn apply(&self) {
        let entry = |(field, count): &(Vec<u8>, Vec<u8>)| BatchEntry {
            field: String::from_utf8(field.clone()).unwrap(),
            count: std::str::from_utf8(count).unwrap().parse().unwrap(),
        };
        let entries = self.batch.fields.iter().map(entry).collect();
        let batch = Batch::new(self.test.buffer.name(), self.batch.id, entries);
        let applied = self.db.store.apply_batch(&self.dead, &batch, &self.test.target).await;
        assert_eq!(applied.unwrap(), Application::Applied);
    }

    async fn cancel(&self) {
        self.db.store.cancel_batch(self.test.buffer.name(), self.batch.id, 2).await.unwrap();
    }

    fn buffer(&self) -> &Buffer {
        &self.test.buffer
    }

    fn backup(&self) -> Backup {
        Backup::new(quick_config(&self.folder).backup_folder, 1 << 30)
    }

    fn back_up(&self) {
        let raw = |bytes: &[u8]| RawText::from(bytes);
        let fields = self.batch.fields.iter().map(|(f, v)| (raw(f), raw(v))).collect();
        let record = Record::Batch(DeadBatch {
            buffer: self.buffer().name().to_owned(),
            batch: self.batch.id,
            written_at: chrono::Utc::now(),
            error: "scripted".to_owned(),
            fields,
        });
        self.backup().append(&[record]).unwrap();
    }

    /// Declares the worker dead; another one takes over.
    async fn take_over(self, sum: i64) -> (TestDb, TestBuffer, TempFolder) {
        let observer = self.db.relay("observer").await;
        self.db.fence(&observer, &self.dead).await;
        let config = quick_config(&self.folder);
        let relay = RunningRelay::start(self.test.relay(&self.db.store, config));
        self.test.until_empty().await;
        assert_eq!(saved(&self.db).await, sum);
        relay.stop().await;
        self.test.assert_balanced(&self.db).await;
        let keys: Vec<String> =
            self.test.ask(&["KEYS", &format!("{}:sync:*", self.test.buffer.key())]).await;
        assert!(keys.is_empty(), "{keys:?}");
        (self.db, self.test, self.folder)
    }
}

async fn a_worker_that_died_after_the_move_loses_nothing(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    let (_, test, _) = scene.take_over(8).await;
    assert_eq!(test.buffer.look().await.unwrap().ledger.applied, 3);
}

async fn a_worker_that_died_after_the_commit_counts_nothing_twice(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.apply().await;
    let ttl: i64 = scene.test.ask(&["PTTL", &scene.key()]).await;
    assert_eq!(ttl, -1, "no time to live before the commit is known");
    let (_, test, _) = scene.take_over(8).await;
    assert_eq!(test.buffer.look().await.unwrap().ledger.ignored, 2);
}

impl Scene {
    fn key(&self) -> String {
        format!("{}:sync:{}", self.test.buffer.key(), self.batch.id)
    }
}

async fn a_worker_that_died_after_the_leak_guard_counts_nothing_twice(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.apply().await;
    scene.buffer().expire(scene.batch.id).await.unwrap();
    let ttl: i64 = scene.test.ask(&["PTTL", &scene.key()]).await;
    assert!(ttl > 3_000_000, "an hour: {ttl} ms");
    scene.take_over(8).await;
}

async fn a_batch_that_the_leak_guard_dropped_after_the_commit_is_only_taken_off_the_list(
    db: TestDb,
) {
    let Some(scene) = moved(db).await else { return };
    scene.apply().await;
    let _: i64 = scene.test.ask(&["DEL", &scene.key()]).await;
    let (_, test, _) = scene.take_over(8).await;
    assert_eq!(test.buffer.look().await.unwrap().ledger.ignored, 2);
}

async fn a_worker_that_died_after_cancelling_gives_the_counts_back(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.cancel().await;
    let file = scene.backup().path();
    let (db, test, _folder) = scene.take_over(8).await;
    assert_eq!(test.buffer.look().await.unwrap().ledger.given_back, 2);
    assert_eq!(db.store.batch_ledger(test.buffer.name()).await.unwrap().dead, 0);
    assert!(!file.exists(), "nothing is dead");
}

async fn a_worker_that_died_after_splitting_loses_no_part(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.cancel().await;
    let (into, owner) = ([Uuid::new_v4(), Uuid::new_v4()], &scene.dead.relay_id);
    for _ in 0..2 {
        let split = scene.buffer().split(scene.batch.id, into, owner, &[b"b"]).await;
        assert_eq!(split.unwrap(), Some(true), "the same when it is repeated");
    }
    assert_eq!(scene.buffer().look().await.unwrap().batches.len(), 2);
    scene.take_over(8).await;
}

async fn a_worker_that_died_after_the_backup_file_counts_nothing_twice(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.cancel().await;
    scene.back_up();
    let file = scene.backup().path();
    let (db, test, _folder) = scene.take_over(8).await;
    let dead = &read(&file).unwrap().batches[0];
    let import = db.store.import_batch(&dead.batch().unwrap(), &test.target, "ann").await;
    assert!(import.unwrap_err().to_string().contains("went back"), "it was given back");
    assert_eq!(saved(&db).await, 8);
}

async fn a_worker_that_died_after_recording_a_dead_batch_leaves_it_to_the_import(db: TestDb) {
    let Some(scene) = moved(db).await else { return };
    scene.cancel().await;
    scene.back_up();
    let name = scene.buffer().name().to_owned();
    scene.db.store.mark_batch_dead(&scene.dead, &name, scene.batch.id).await.unwrap();
    let file = scene.backup().path();
    let (db, test, _folder) = scene.take_over(1).await;
    assert_eq!(test.buffer.look().await.unwrap().ledger.dead, 2);
    let dead = read(&file).unwrap().batches.remove(0).batch().unwrap();
    for expected in [8, 8] {
        db.store.import_batch(&dead, &test.target, "ann").await.unwrap();
        assert_eq!(saved(&db).await, expected, "imported once");
    }
    test.assert_balanced(&db).await;
}

/// The server ran the script, but the answer was lost, and the worker asks again.
async fn a_step_in_redis_whose_answer_was_lost_is_done_once(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "buffer_crashes").await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&test.url).await;
    let mut settings = test.settings();
    settings.url = url;
    let folder = TempFolder::new();
    let relay = postrider_relay::Relay::new(db.store.clone(), quick_config(&folder))
        .buffer(test.config_of(settings));
    let relay = RunningRelay::start(relay);
    // Bytes that only one command contains: the move, the time to live, the end, the look.
    let mut sum = 0;
    for marker in ["HRANDFIELD", "PEXPIRE", "how it ended", "Reads the state"] {
        let lost = proxy.answers_lost();
        proxy.lose_answer_to(marker.as_bytes());
        test.buffer.increment_all(&[("a", 1), ("b", 2)]).await.unwrap();
        sum += 3;
        eventually(marker, async || (proxy.answers_lost() > lost).then_some(())).await;
        test.until_empty().await;
        eventually("all is saved", async || (saved(&db).await == sum).then_some(())).await;
    }
    relay.stop().await;
    assert_eq!(saved(&db).await, sum);
    let ended = test.buffer.finish(Uuid::new_v4(), BatchEnd::Applied).await.unwrap();
    assert_eq!(ended, 0, "a batch that is on no list ends nothing");
    test.assert_balanced(&db).await;
}

/// The database committed, but the answer was lost, and the worker applies the same batch again.
async fn the_answer_to_commit_was_lost_and_nothing_is_counted_twice(db: TestDb) {
    let Some(test) = TestBuffer::open(&db, "REDIS_URL", "buffer_crashes").await else { return };
    let (proxy, url) = FaultProxy::in_front_of(&db.url).await;
    let options = postrider_store::ConnectOptions { connections_max: 4, create: false };
    let store = postrider_store::connect(&url, &options).await.unwrap();
    let folder = TempFolder::new();
    let relay = RunningRelay::start(test.relay(&store, quick_config(&folder)));
    let marker: &[u8] = match db.store.kind() {
        StoreKind::Postgres | StoreKind::Mysql => b"COMMIT",
        StoreKind::Sqlite => unreachable!("there is no network to lose an answer on"),
    };
    let mut sum = 0;
    let mut ignored = 0;
    while ignored == 0 {
        let lost = proxy.answers_lost();
        proxy.lose_answer_to(marker);
        test.buffer.increment_all(&[("a", 1), ("b", 2)]).await.unwrap();
        sum += 3;
        eventually("an answer is lost", async || (proxy.answers_lost() > lost).then_some(())).await;
        test.until_empty().await;
        ignored = test.buffer.look().await.unwrap().ledger.ignored;
    }
    relay.stop().await;
    assert_eq!(saved(&db).await, sum);
    test.assert_balanced(&db).await;
}
