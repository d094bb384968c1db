//! What operators do in bulk, and what they hold: jobs, replay, export, edit, pauses, the audit
//! trail.

use postrider::NewEvent;
use postrider_testkit::{Answer, eventually, installation::OPERATOR};
use serde_json::Value;

use crate::scene::{Committed, OUTBOX, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, mysql, sqlite: {
    a_job_that_is_interrupted_goes_on_where_it_stopped,
    a_job_whose_process_is_killed_is_finished_by_the_daemon,
    dead_letters_are_grouped_edited_and_exported,
    delivered_events_are_replayed_from_the_archive,
    a_paused_sink_is_shown_and_goes_on_when_resumed,
    an_operators_name_that_the_audit_trail_cannot_hold_is_refused,
});

/// A scene with so many dead letters, and no daemon.
async fn with_dead_letters(place: Place, count: usize) -> Option<(Scene, Vec<Committed>)> {
    let scene = Scene::open(place, &Settings::new()).await?;
    let events = scene.append_orders(count).await;
    let relay = scene.db.relay("before").await;
    let claimed = scene.db.claim(&relay, u32::try_from(count).unwrap()).await;
    for (number, event) in claimed.iter().enumerate() {
        scene.db.move_to_dlq(&relay, event, &format!("HTTP 422: no product {number}")).await;
    }
    scene.db.store.retire(&relay).await.unwrap();
    Some((scene, events))
}

async fn an_operators_name_that_the_audit_trail_cannot_hold_is_refused(place: Place) {
    let Some((scene, _)) = with_dead_letters(place, 2).await else { return };
    let resolve = async |operator: &str| {
        let id = scene.dead_letters().await[0]["id"].to_string();
        scene.site.run(&["dlq", "resolve", &id, "--note", "x", "--operator", operator]).await
    };
    let long = "é".repeat(101);
    let _ = resolve(&long).await.exits(2).says(&["--operator", "101 characters", "100"]);
    let _ = resolve(&"é".repeat(100)).await.exits(0);
    let retry = ["dlq", "retry", "--all", "--note", "x", "--operator", &long];
    let _ = scene.site.run(&retry).await.exits(2).says(&["--operator", "101 characters"]);
    assert_eq!(scene.db.integer("SELECT count(*) FROM postrider_jobs").await, 0);
}

/// Starts a slow retry of everything and waits until it has begun; answers the job's id.
async fn begun(scene: &Scene) -> (postrider_testkit::installation::Begun, i64) {
    let slow = ["dlq", "retry", "--all", "--rate", "4", "--note", "back", "-o", OUTBOX];
    let command = scene.site.begin(&slow);
    let done = "SELECT count(*) FROM postrider_jobs WHERE done_count > 0";
    let begun = async || (scene.db.integer(done).await > 0).then_some(());
    eventually("the job has begun", begun).await;
    (command, scene.db.integer("SELECT max(id) FROM postrider_jobs").await)
}

async fn a_job_that_is_interrupted_goes_on_where_it_stopped(place: Place) {
    let Some((scene, events)) = with_dead_letters(place, 40).await else { return };
    let (command, job) = begun(&scene).await;
    let _ = command.signalled("INT").await.exits(130).says(&["jobs resume"]);
    let sent = scene.db.count("").await;
    assert!((1..40).contains(&sent), "half-way: {sent}");
    let id = job.to_string();
    let shown = scene.site.run(&["jobs", "show", &id, "--json"]).await.exits(0).json();
    assert_eq!((&shown["state"], &shown["done_count"]), (&"stopped".into(), &sent.into()));
    let _ = scene.site.run(&["jobs", "stop", &id]).await.exits(1).says(&["stopped"]);
    scene.db.execute("UPDATE postrider_jobs SET rate = NULL").await;
    let resumed = scene.site.run(&["jobs", "resume", &id, "--json"]).await.exits(0).json();
    assert_eq!((&resumed["done"], &resumed["job"]["state"]), (&40.into(), &"done".into()));
    let _ = scene.site.run(&["jobs", "list"]).await.exits(0).shows(&["dlq_retry", "done", "40"]);
    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events, 40).await;
    assert_eq!(scene.target.taken().values().sum::<u32>(), 40, "each once");
}

async fn a_job_whose_process_is_killed_is_finished_by_the_daemon(place: Place) {
    let Some((scene, events)) = with_dead_letters(place, 30).await else { return };
    let (command, job) = begun(&scene).await;
    let killed = command.signalled("KILL").await;
    assert_eq!(killed.code, None);
    // The runner's last sign of life is long ago, and the rest may go faster.
    scene.db.age("postrider_jobs", "beat_at", std::time::Duration::from_secs(600), "1 = 1").await;
    scene.db.execute("UPDATE postrider_jobs SET rate = NULL").await;
    let daemon = scene.site.start().await;
    let done = format!("SELECT count(*) FROM postrider_jobs WHERE id = {job} AND state = 'done'");
    let is_done = async || (scene.db.integer(&done).await == 1).then_some(());
    eventually("the daemon finishes the job", is_done).await;
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&events, 30).await;
    assert_eq!(scene.target.taken().values().sum::<u32>(), 30, "each once");
}

async fn dead_letters_are_grouped_edited_and_exported(place: Place) {
    let Some((scene, _)) = with_dead_letters(place, 5).await else { return };
    let groups = scene.json(&["dlq", "groups"]).await;
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1, "{groups:#}");
    let group = &groups["groups"][0];
    assert_eq!((&group["count"]["count"], &groups["complete"]), (&5.into(), &true.into()));
    let fingerprint = group["fingerprint"].as_str().unwrap();
    let same = scene.json(&["dlq", "list", "--fingerprint", fingerprint]).await;
    assert_eq!(same.as_array().unwrap().len(), 5);
    let other = scene.json(&["dlq", "list", "--fingerprint", "0000000000000000"]).await;
    assert_eq!(other, Value::Array(Vec::new()));

    // Edited: a new event, and the letter is resolved with it.
    let id = same[0]["id"].to_string();
    let edit = ["dlq", "edit", &id, "-o", OUTBOX, "--payload", "-", "--header", "why=typo"];
    let edit = [&edit[..], &["--note", "typo", "--json"]].concat();
    let sent = scene.site.run_with(&edit, &[], "{\"n\":2}\n").await.exits(0).json();
    let event = scene.json(&["events", "show", &sent["id"].to_string()]).await;
    assert_eq!(event["event"]["payload"], r#"{"n":2}"#);
    assert_eq!(event["event"]["event_id"], sent["event_id"]);
    let found = scene.json(&["events", "find", sent["event_id"].as_str().unwrap()]).await;
    assert_eq!(found["events"][0]["id"], sent["id"]);
    let again = scene.site.run_with(&edit, &[], "{\"n\":3}").await;
    let _ = again.exits(1).says(&["resolved already"]);

    // Exported, lost, and back again, in the order in which they were.
    let file = scene.site.path("letters.jsonl");
    let to = file.to_str().unwrap();
    let export = ["dlq", "export", "-o", OUTBOX, "--resolved", "false", "--to", to];
    let _ = scene.site.run(&export).await.exits(0).shows(&["4 written"]);
    let _ = scene.site.run(&export).await.exits(2).says(&["letters.jsonl", "exists"]);
    let before = scene.json(&["dlq", "list", "--resolved", "false"]).await;
    let dlq = format!("{}_dlq", scene.db.outbox.table());
    scene.db.execute(&format!("DELETE FROM {dlq} WHERE retried_as IS NULL")).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let import = ["dlq", "import", "-", "--json"];
    let report = scene.site.run_with(&import, &[], &text).await.exits(0).json();
    assert_eq!(report["restored"], 4);
    let after = scene.json(&["dlq", "list", "--resolved", "false"]).await;
    for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
        for field in ["original_id", "event_id", "payload_bytes", "error_message", "fingerprint"] {
            assert_eq!(before[field], after[field], "{field}");
        }
    }
    let dry = [&import[..], &["--dry-run"]].concat();
    let report = scene.site.run_with(&dry, &[], &text).await.exits(0).json();
    assert_eq!((&report["known"], &report["restored"]), (&4.into(), &0.into()), "{report:#}");
    let tampered = text.replacen("order-", "order_", 1);
    let report = scene.site.run_with(&import, &[], &tampered).await.exits(1).json();
    assert_eq!((&report["known"], report["damaged"].as_array().unwrap().len()), (&3.into(), 1));
}

async fn delivered_events_are_replayed_from_the_archive(place: Place) {
    let settings = Settings::new();
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let event = |kind: &str| NewEvent::new("order", kind, kind, "{}");
    let events = scene.append(&["Paid", "Placed", "Paid"].map(event)).await;
    let daemon = scene.site.start().await;
    scene.drained().await;
    let replay = ["replay", "--event-type", "Paid", "--note", "lost there"];
    let dry = scene.json(&[&replay[..], &["--dry-run"]].concat()).await;
    assert_eq!((&dry["done"], &dry["dry_run"]), (&2.into(), &true.into()));
    let done = scene.json(&replay).await;
    assert_eq!(done["done"], 2);
    eventually("they arrive again", async || {
        (scene.target.taken().values().sum::<u32>() == 5).then_some(())
    })
    .await;
    scene.drained().await;
    daemon.stop().await;
    let dry = scene.json(&[&replay[..], &["--dry-run"]].concat()).await;
    assert_eq!(dry["done"], 2, "copies are not replayed in their turn");
    let copies = scene.json(&[&replay[..], &["--dry-run", "--replayed", "true"]].concat()).await;
    assert_eq!(copies["done"], 2);
    assert_eq!(scene.target.taken().len(), 3, "with the identities that they had");
    assert_eq!(scene.target.taken()[&events[1].event_id], 1);
    scene.reconcile().await;
    let into = scene.site.run(&["replay", "-o", OUTBOX, "--into", "nowhere"]).await;
    let _ = into.exits(2).says(&["nowhere", OUTBOX]);

    scene.configure(&settings.outbox("on_success", "delete"));
    let refused = scene.site.run(&["replay", "-o", OUTBOX]).await.exits(2);
    let _ = refused.says(&["keeps no archive", "on_success"]);
}

async fn a_paused_sink_is_shown_and_goes_on_when_resumed(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    scene.target.answer(Answer::ok());
    let _ = scene.site.run(&["sink", "pause", "nowhere"]).await.exits(2).says(&["nowhere", "api"]);
    let pause = ["sink", "pause", "api", "--note", "upgrade"];
    let _ = scene.site.run(&pause).await.exits(0).shows(&["is paused", "sink resume api"]);
    let _ = scene.site.run(&pause).await.exits(0).shows(&["already"]);
    let daemon = scene.site.start().await;
    daemon.shows("postrider_outbox_paused", &[("outbox", OUTBOX)], 1.0).await;
    let events = scene.append_orders(3).await;
    let stats = scene.json(&["stats"]).await;
    assert_eq!(stats[0]["paused"][0]["operator"], OPERATOR, "{stats:#}");
    let _ = scene.site.run(&["stats"]).await.exits(0).shows(&["sink api", "upgrade"]);
    assert!(scene.target.taken().is_empty());
    let _ = scene.site.run(&["sink", "resume", "api"]).await.exits(0);
    scene.drained().await;
    let _ = scene.site.run(&["outbox", "pause", OUTBOX]).await.exits(0).shows(&["is paused"]);
    daemon.shows("postrider_outbox_paused", &[("outbox", OUTBOX)], 1.0).await;
    let _ = scene.site.run(&["outbox", "resume", OUTBOX]).await.exits(0);
    daemon.shows("postrider_outbox_paused", &[("outbox", OUTBOX)], 0.0).await;
    daemon.stop().await;
    scene.settle_up(&events, 0).await;
    let audit = scene.site.run(&["audit", "--json", "--operator", OPERATOR]).await.exits(0).json();
    let actions: Vec<_> = audit.as_array().unwrap().iter().map(|e| &e["action"]).collect();
    assert_eq!(actions, ["outbox.resume", "outbox.pause", "sink.resume", "sink.pause"]);
    let some = ["audit", "--action", "sink.pause", "--limit", "1"];
    let _ = scene.site.run(&some).await.exits(0).shows(&["sink.pause", "upgrade"]);
}
