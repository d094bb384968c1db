//! Buffers of the daemon, and their commands.

use postrider_testkit::{
    Installation, TestDb,
    buffer::{TestBuffer, saved},
    eventually,
};
use uuid::Uuid;

use crate::scene::{BINARY, Place};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    a_killed_daemon_loses_no_count_and_reconcile_shows_it,
    a_batch_moved_while_the_one_before_fails_is_counted_as_moved,
    dead_batches_are_imported_once_by_command,
    recover_ends_the_batches_of_dead_workers_without_a_daemon,
});

struct Scene {
    db: TestDb,
    test: TestBuffer,
    site: Installation,
}

impl Scene {
    async fn open(place: Place) -> Option<Self> {
        let db = TestDb::open(place.server, place.test).await?;
        let test = TestBuffer::open(&db, "REDIS_URL", place.test).await?;
        let config = format!(
            "[store]\nurl = '{}'\n[server]\nlisten = '127.0.0.1:0'\n\
             [relay]\nlease = '1500ms'\nheartbeat_every = '400ms'\nbackup_folder = 'dead'\n\
             [[buffer]]\nname = '{}'\nurl = '{}'\ntable = 'likes'\nkey_column = 'post'\n\
             count_column = 'total'\nflush_every = '20ms'\nfields_max = 2\n",
            db.url.split('?').next().unwrap(),
            test.buffer.name(),
            test.url,
        );
        let site = Installation::new(BINARY, &config);
        Some(Self { db, test, site })
    }

    /// The one element of a JSON list that a command printed.
    async fn only(&self, args: &[&str]) -> serde_json::Value {
        self.site.run(args).await.exits(0).json()[0].clone()
    }
}

async fn a_killed_daemon_loses_no_count_and_reconcile_shows_it(place: Place) {
    let Some(scene) = Scene::open(place).await else { return };
    scene.site.run(&["run", "--check"]).await.exits(0).shows(&["in order"]);
    let mut sum = 0;
    for _ in 0..3 {
        let daemon = scene.site.start().await;
        for n in 0..200 {
            scene.test.buffer.increment(&format!("post-{}", n % 10), 2).await.unwrap();
            sum += 2;
        }
        daemon.kill().await;
    }
    let daemon = scene.site.start().await;
    scene.test.until_empty().await;
    assert_eq!(saved(&scene.db).await, sum);
    let name = scene.test.buffer.name();
    let labels = [("buffer", name)];
    daemon.shows("postrider_buffer_dead_letters_total", &labels, 0.0).await;
    let status = scene.only(&["buffer", "status", "--json"]).await;
    assert_eq!((&status["buffer"], &status["fields"]), (&name.into(), &0.into()));
    let ledger = scene.only(&["reconcile", "--json"]).await;
    assert_eq!(ledger["balanced"], true, "{ledger}");
    daemon.stop().await;
    let _: i64 = scene
        .test
        .ask(&["HINCRBY", &format!("{}:ledger", scene.test.buffer.key()), "moved", "1"])
        .await;
    scene.site.run(&["reconcile"]).await.exits(3).says(&[name, "does not balance"]);
}

/// The metric and the ledger in Redis count the same: what has left the buffer, saved or not.
async fn a_batch_moved_while_the_one_before_fails_is_counted_as_moved(place: Place) {
    let Some(scene) = Scene::open(place).await else { return };
    let daemon = scene.site.start().await;
    // The worker has looked at its table when something is saved.
    scene.test.buffer.increment("first", 1).await.unwrap();
    scene.test.until_empty().await;
    scene.db.execute("ALTER TABLE likes RENAME TO hidden").await;
    let counts = ["a", "b", "c", "d", "e", "f", "g"].map(|post| (post, 1));
    scene.test.buffer.increment_all(&counts).await.unwrap();
    let both = async || {
        let look = scene.test.buffer.look().await.unwrap();
        (look.batches.len() == 2).then_some(look.ledger.moved)
    };
    assert_eq!(eventually("two batches wait", both).await, 5);
    let labels = [("buffer", scene.test.buffer.name())];
    daemon.shows("postrider_buffer_moved_total", &labels, 5.0).await;
    scene.db.execute("ALTER TABLE hidden RENAME TO likes").await;
    let look = scene.test.until_empty().await;
    assert_eq!((saved(&scene.db).await, look.ledger.moved), (8, 8));
    daemon.shows("postrider_buffer_moved_total", &labels, 8.0).await;
    daemon.shows("postrider_buffer_applied_total", &labels, 8.0).await;
    daemon.stop().await;
}

async fn dead_batches_are_imported_once_by_command(place: Place) {
    let Some(scene) = Scene::open(place).await else { return };
    scene.db.execute(&format!("INSERT INTO likes VALUES ('full', {})", i64::MAX)).await;
    scene.test.buffer.increment_all(&[("full", 5), ("b", 1)]).await.unwrap();
    let key = scene.test.buffer.key().to_owned();
    let _: i64 = scene.test.ask(&["HSET", &key, "bad", "abc"]).await;
    let daemon = scene.site.start().await;
    scene.test.until_empty().await;
    daemon.stop().await;
    let file = scene.site.path("dead/dead-letters.jsonl").display().to_string();
    let import = ["buffer", "import", &file, "--operator", "ann"];
    scene
        .site
        .run(&import)
        .await
        .exits(1)
        .says(&["abc", "not a count"])
        .shows(&["0 batches imported"]);
    scene.db.execute("UPDATE likes SET total = 0 WHERE post = 'full'").await;
    scene.site.run(&import).await.exits(1).shows(&["1 batches imported"]);
    scene.site.run(&import).await.exits(1).shows(&["0 batches imported", "1 known already"]);
    assert_eq!(saved(&scene.db).await, 6);
    let trail = scene.site.run(&["audit", "--json"]).await.exits(0).json();
    assert_eq!(trail[0]["action"], "buffer.import", "{trail}");
    scene.site.run(&["reconcile"]).await.exits(0).shows(&["balanced"]);
}

async fn recover_ends_the_batches_of_dead_workers_without_a_daemon(place: Place) {
    let Some(scene) = Scene::open(place).await else { return };
    let dead = scene.db.relay("dead").await;
    scene.test.buffer.increment("a", 5).await.unwrap();
    scene.test.buffer.move_batch(Uuid::new_v4(), &dead.relay_id, 10).await.unwrap();
    let status = scene.only(&["buffer", "status", "--json"]).await;
    assert_eq!(status["batches"][0]["owner"], dead.relay_id.as_str());
    scene
        .site
        .run(&["buffer", "recover"])
        .await
        .exits(0)
        .shows(&["1 batches found, 1 ended, 0 left"]);
    eventually("it is saved", async || (saved(&scene.db).await == 5).then_some(())).await;
    assert!(scene.db.store.relays().await.unwrap().iter().all(|relay| relay.fenced), "retired");
    let unknown = scene.site.run(&["buffer", "status", "--buffer", "nobody"]).await;
    unknown.exits(2).says(&["nobody", scene.test.buffer.name()]);
}

/// Two workers on one hash would save each other's counts to the wrong table.
#[tokio::test(flavor = "multi_thread")]
async fn two_buffers_with_one_key_are_found_by_the_check() {
    let site = Installation::new(BINARY, "");
    let buffer = |name: &str, url: &str, key: &str| {
        format!(
            "[[buffer]]\nname = '{name}'\nurl = '{url}'\nkey = '{key}'\ntable = '{name}'\n\
             key_column = 'post'\ncount_column = 'total'\n"
        )
    };
    let likes = buffer("likes", "redis://127.0.0.1:1/", "{counts}");
    let views = buffer("views", "redis://127.0.0.1:1", "{counts}");
    site.configure(&format!("{likes}{views}"));
    let refused = site.run(&["run", "--check"]).await.exits(2);
    let _ = refused.says(&["[[buffer]] `views`", "`key` = `{counts}`", "`likes`"]);
    for other in [
        buffer("views", "redis://127.0.0.1:1/", "{views}"),
        buffer("views", "redis://127.0.0.1:2/", "{counts}"),
    ] {
        site.configure(&format!("{likes}{other}"));
        let checked = site.run(&["run", "--check"]).await;
        assert!(!checked.stderr.contains("key of its own"), "{checked:?}");
    }
}
