//! Tables of other programs that an outbox serves: what becomes of a row that they insert.

use postrider_store::{Dedupe, Retention};
use postrider_testkit::{Answer, TestServer, eventually};

use crate::adopted_stage::{
    NOTIFICATION, Old, adopted, is_postgres, on_old_tables, uuid, with_old_table,
};
use crate::scene::{Place, Scene};

on_old_tables!({
    an_old_insert_is_delivered_and_its_row_says_so,
    a_failed_attempt_shows_in_the_row_until_it_is_delivered,
    dead_letters_are_in_both_tables_and_so_is_what_operators_do,
    a_writer_that_rolls_back_leaves_nothing,
    a_relay_that_dies_between_delivery_and_settle_delivers_again_and_the_row_says_so_once,
    a_row_that_a_program_keeps_locked_holds_up_its_own_event_alone,
    hundreds_of_writers_at_once_lose_nothing,
});

crate::on_stores!(mariadb, mysql: {
    a_repeated_request_id_is_refused_as_before_and_no_longer_than_told,
});

async fn an_old_insert_is_delivered_and_its_row_says_so(place: Place, old: Old) {
    let Some(scene) = adopted(place, old).await else { return };
    let daemon = scene.site.start().await;
    for number in 0..20 {
        scene.db.execute(&old.insert(number, None)).await;
    }
    scene.shows(old, old.delivered, 20).await;
    scene.drained().await;
    assert_eq!(scene.identities(), 20);
    assert_eq!(scene.target.count(), 20, "each once");
    if old.form == "debezium" {
        assert_eq!(scene.target.calls(&uuid(7)).len(), 1, "the identity is the row's own id");
    }
    if old.form == "broker" {
        let received = scene.target.received();
        assert!(received.iter().all(|request| request.header("traced") == "yes"));
        let shown = "published_at IS NOT NULL AND updated_at >= created_at AND attempt_count = 0";
        assert_eq!(scene.old_rows(old, shown).await, 20);
    }
    daemon.stop().await;
    scene.balances(20, 0).await;
}

async fn a_failed_attempt_shows_in_the_row_until_it_is_delivered(place: Place, old: Old) {
    let Some(scene) = adopted(place, old).await else { return };
    scene.target.answer(Answer::status(404));
    scene.db.execute(&old.insert(1, None)).await;
    let daemon = scene.site.start().await;
    if let Some((retries, error)) = old.retries.zip(old.error) {
        let shown = format!("{retries} >= 1 AND {error} LIKE '%404%'");
        eventually("the row shows the failure", async || {
            (scene.old_rows(old, &shown).await == 1).then_some(())
        })
        .await;
    } else {
        eventually("it was tried", async || (scene.target.count() > 0).then_some(())).await;
    }
    scene.target.answer(Answer::ok());
    scene.shows(old, old.delivered, 1).await;
    scene.drained().await;
    daemon.stop().await;
    scene.balances(1, 0).await;
}

async fn dead_letters_are_in_both_tables_and_so_is_what_operators_do(place: Place, old: Old) {
    let Some(scene) = adopted(place, old).await else { return };
    scene.target.answer(Answer::status(422).body("no such account"));
    for number in 0..5 {
        scene.db.execute(&old.insert(number, None)).await;
    }
    let daemon = scene.site.start().await;
    scene.has_dead_letters(5).await;
    scene.shows(old, old.dead, 5).await;
    let letters = if old.letters.is_some() { 5 } else { 0 };
    assert_eq!(scene.old_letters(old, "1 = 1").await, letters);
    if let Some((table, original)) = old.letters {
        let joined = format!("SELECT count(DISTINCT {original}) FROM {table}");
        assert_eq!(scene.db.integer(&joined).await, 5, "each names its row");
    }
    daemon.stop().await;

    // One is resolved, one is sent again, one is sent again edited, the others in bulk.
    scene.target.answer(Answer::ok());
    let ids: Vec<String> =
        scene.dead_letters().await.iter().map(|letter| letter["id"].to_string()).collect();
    let note = ["dlq", "resolve", &ids[0], "--note", "refunded", "--operator", "olga"];
    assert_eq!(scene.json(&note).await["done"], 1);
    let open = ["dlq", "reopen", &ids[0], "--note", "not yet", "--operator", "olga"];
    let _ = scene.site.run(&open).await.exits(0).shows(&["1 open again"]);
    assert_eq!(scene.dead_letters().await.len(), 5);
    if old.form == "handler" {
        let open = "NOT resolved AND resolved_at IS NULL AND resolved_by IS NULL";
        assert_eq!(scene.old_letters(old, open).await, 5, "taken back there too");
    }
    assert_eq!(scene.json(&note).await["done"], 1);
    assert_eq!(scene.json(&["dlq", "retry", &ids[1]]).await["done"], 1);
    if old.dead.is_some() {
        scene.shows(old, Some("PENDING"), 1).await;
    }
    let edited = scene.site.path("edited.json");
    std::fs::write(&edited, "{}").unwrap();
    let edit = ["dlq", "edit", &ids[2], "--payload", edited.to_str().unwrap()];
    scene.json(&edit).await;
    assert_eq!(scene.json(&["dlq", "retry", "--all"]).await["done"], 2);
    if old.form == "handler" {
        let resolved = "resolved AND resolved_by = 'olga' AND resolution_note = 'refunded'";
        assert_eq!(scene.old_letters(old, resolved).await, 1);
        assert_eq!(scene.old_letters(old, "resolved AND resolved_at IS NOT NULL").await, 5);
    }
    if old.dead.is_some() {
        scene.shows(old, Some("PENDING"), 3).await;
        scene.shows(old, old.dead, 2).await;
    }
    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    // The edited copy has an identity, and a hash, of its own.
    assert_eq!(scene.identities(), 4, "{:?}", scene.target.taken());
    if let Some(dead) = old.dead {
        scene.shows(old, Some(dead), 2).await;
        let rows = scene.old_rows(old, "1 = 1").await;
        assert_eq!(rows, if old.delivered.is_some() { 5 } else { 2 });
    } else {
        scene.shows(old, None, 0).await;
    }
    scene.balances(4, 5).await;
}

async fn a_writer_that_rolls_back_leaves_nothing(place: Place, old: Old) {
    let Some(scene) = adopted(place, old).await else { return };
    let mut tx = scene.db.begin().await;
    tx.execute(&old.insert(1, None)).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!((scene.db.count("").await, scene.old_rows(old, "1 = 1").await), (0, 0));
    // Insert and delete at once, as Debezium has it: the event is on its way all the same.
    let mut tx = scene.db.begin().await;
    tx.execute(&old.insert(2, None)).await.unwrap();
    tx.execute(&format!("DELETE FROM {}", old.table)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((scene.db.count("").await, scene.old_rows(old, "1 = 1").await), (1, 0));
    if let Some(delivered) = old.delivered {
        // Not due: somebody else has delivered it.
        scene.db.execute(&old.insert(3, Some(delivered))).await;
    }
    if !is_postgres(&scene.db) && old.form != "debezium" {
        // Far from the ids of the outbox: a writer must find its own row, not the event.
        let apart = format!("ALTER TABLE {} AUTO_INCREMENT = 1000", old.table);
        scene.db.execute(&apart).await;
        let mut tx = scene.db.begin().await;
        tx.execute(&old.insert(4, None)).await.unwrap();
        let own = format!("DELETE FROM {} WHERE {} = LAST_INSERT_ID()", old.table, old.id);
        assert_eq!(tx.execute(&own).await.unwrap(), 1);
        tx.rollback().await.unwrap();
    }
    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    assert_eq!(scene.identities(), 1);
    scene.balances(1, 0).await;
}

async fn a_relay_that_dies_between_delivery_and_settle_delivers_again_and_the_row_says_so_once(
    place: Place,
    old: Old,
) {
    // In lanes nothing is written before the delivery: whoever holds the row stops the settle
    // alone.
    let settings = old.settings().outbox("claim", "lanes");
    let Some(scene) = with_old_table(place, old, &settings).await else { return };
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.db.execute(&old.insert(1, None)).await;
    let mut tx = scene.db.begin().await;
    tx.execute(&format!("SELECT 1 FROM {} FOR UPDATE", old.table)).await.unwrap();
    let relay = scene.site.start().await;
    eventually("it is delivered", async || (scene.target.count() > 0).then_some(())).await;
    eventually("the settle waits for the row", async || waits(&scene, old).await.then_some(()))
        .await;
    relay.kill().await;
    if is_postgres(&scene.db) {
        // The server would finish a statement whose client is gone.
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        scene.db.execute(end).await;
        eventually("it is ended", async || (!waits(&scene, old).await).then_some(())).await;
    }
    tx.rollback().await.unwrap();
    assert_eq!(scene.db.count("").await, 1, "what was not settled is still there");
    let relay = scene.site.start().await;
    scene.shows(old, old.delivered, 1).await;
    scene.drained().await;
    relay.stop().await;
    assert_eq!(scene.identities(), 1, "twice, with one identity");
    assert!(scene.target.count() >= 2);
    scene.balances(1, 0).await;
}

/// Whether a session waits for a lock of another.
async fn waits(scene: &Scene, old: Old) -> bool {
    // MySQL tells whole seconds.
    let long = if scene.db.server == TestServer::Mysql { "TIME > 0" } else { "TIME_MS > 100" };
    let query = match is_postgres(&scene.db) {
        true => "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'"
            .to_owned(),
        // What the trigger does to the row, or the statement that fired it; nothing but the held
        // row makes them wait. (INNODB_TRX would be a copy, renewed only for those who ask seldom.)
        false => format!(
            "SELECT count(*) FROM information_schema.PROCESSLIST
             WHERE DB = DATABASE() AND ID <> CONNECTION_ID() AND {long}
               AND (INFO LIKE '%DELETE o FROM JSON_TABLE%' OR INFO LIKE '%`{}`%')",
            old.table
        ),
    };
    scene.db.integer(&query).await > 0
}

/// Claimed, delivered and repeated all the same: only the end of the work waits for the row.
async fn a_row_that_a_program_keeps_locked_holds_up_its_own_event_alone(place: Place, old: Old) {
    let Some(scene) = adopted(place, old).await else { return };
    for number in 0..5 {
        scene.db.execute(&old.insert(number, None)).await;
    }
    let mut tx = scene.db.begin().await;
    let first = format!("SELECT 1 FROM {0} ORDER BY {1} LIMIT 1 FOR UPDATE", old.table, old.id);
    tx.execute(&first).await.unwrap();
    let daemon = scene.site.start().await;
    eventually("the others are delivered and settled", async || {
        (scene.db.count("").await == 1).then_some(())
    })
    .await;
    assert_eq!(scene.identities(), 5);
    tx.rollback().await.unwrap();
    scene.shows(old, old.delivered, 5).await;
    scene.drained().await;
    daemon.stop().await;
    scene.balances(5, 0).await;
}

async fn hundreds_of_writers_at_once_lose_nothing(place: Place, old: Old) {
    const WRITERS: usize = 200;
    let Some(scene) = adopted(place, old).await else { return };
    let daemon = scene.site.start().await;
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..WRITERS {
        let begin = scene.db.begin_later();
        writers.spawn(async move {
            let mut tx = begin.await;
            tx.execute(&old.insert(number, None)).await.unwrap();
            // Every fifth changes its mind.
            match number % 5 {
                0 => tx.rollback().await.unwrap(),
                _ => tx.commit().await.unwrap(),
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let committed = WRITERS - WRITERS / 5;
    scene.shows(old, old.delivered, i64::try_from(committed).unwrap()).await;
    scene.drained().await;
    daemon.stop().await;
    assert_eq!(scene.identities(), committed);
    assert_eq!(scene.target.count(), committed, "each once");
    scene.balances(committed, 0).await;
}

/// While the delivered row is there, its own index refuses; after its clean-up the outbox does, and
/// forgets at the same time.
async fn a_repeated_request_id_is_refused_as_before_and_no_longer_than_told(place: Place) {
    let old = NOTIFICATION;
    let Some(scene) = adopted(place, old).await else { return };
    scene.db.execute(&old.insert(1, None)).await;
    let daemon = scene.site.start().await;
    scene.shows(old, old.delivered, 1).await;
    daemon.stop().await;
    let refused = scene.db.try_execute(&old.insert(1, None)).await.unwrap_err().to_string();
    assert!(refused.contains("1062"), "{refused}");
    let keys = format!("{}_keys", scene.db.outbox.table());
    let days = |days: u64| std::time::Duration::from_secs(days * 24 * 3_600);
    scene.db.age(old.table, "updated_at", days(8), "1 = 1").await;
    scene.db.age(&keys, "created_at", days(8), "1 = 1").await;
    let (store, outbox) = (&scene.db.store, &scene.db.outbox);
    let retention = Retention {
        archive: days(7),
        resolved: days(7),
        dedupe: Dedupe::Window(days(7)),
        chunk: 100,
    };
    assert_eq!(store.clean_up(outbox, &retention).await.unwrap().keys, 1);
    let adoption = old.adoption(true);
    assert_eq!(store.clean_adopted(outbox, &adoption, days(9), 100).await.unwrap(), 0);
    assert_eq!(store.clean_adopted(outbox, &adoption, days(7), 100).await.unwrap(), 1);
    scene.db.execute(&old.insert(1, None)).await;
    let daemon = scene.site.start().await;
    scene.shows(old, old.delivered, 1).await;
    daemon.stop().await;
}
