//! Adopted tables: the import of what was there before.

use std::collections::BTreeMap;

use postrider_testkit::{Answer, eventually};

use crate::adopted_stage::{Old, on_old_tables, with_old_table};
use crate::scene::{Place, Scene};

on_old_tables!({
    rows_and_dead_letters_that_were_there_are_imported_once,
    an_import_that_is_killed_is_begun_again_and_doubles_nothing,
});

/// An old table with a past: rows in all states, and dead letters. Returns how many are due, and
/// how many letters are open.
async fn with_a_past(scene: &Scene, old: Old) -> (usize, usize) {
    let words: &[&str] = match old.form {
        "broker" => &["PENDING", "FAILED", "SENDING", "PUBLISHED", "DEAD_LETTER"],
        "handler" => &["PENDING", "DONE"],
        "debezium" => &[],
        _ => &["PENDING", "FAILED", "PROCESSING", "COMPLETED", "DEAD_LETTER"],
    };
    let finished = ["PUBLISHED", "COMPLETED", "DEAD_LETTER", "DONE"];
    let mut due = 0;
    for number in 0..10 {
        let state = (!words.is_empty()).then(|| words[number % words.len()]);
        scene.db.execute(&old.insert(number, state)).await;
        due += usize::from(state.is_none_or(|state| !finished.contains(&state)));
    }
    let dead = |column: &str| format!("FROM {} WHERE {column} = 'DEAD_LETTER'", old.table);
    let letters = match old.form {
        "api-call" => {
            let select = format!("SELECT id, ocid, endpoint, 'gave up' {}", dead("status"));
            let insert = "INSERT INTO nexon_api_dlq (original_id, ocid, endpoint, error_message)";
            // Of one event twice, and of one that was sent again since.
            scene.db.execute(&format!("{insert} {select}")).await;
            scene.db.execute(&format!("{insert} {select}")).await;
            let again = format!(
                "SELECT id, ocid, endpoint, 'gave up' FROM {} WHERE status = 'COMPLETED'",
                old.table
            );
            scene.db.execute(&format!("{insert} {again}")).await;
            2
        }
        "notification" => {
            scene
                .db
                .execute(&format!(
                    "INSERT INTO donation_dlq (original_id, request_id, event_type, payload, reason)
                     SELECT id, request_id, event_type, payload, 'gave up' {}",
                    dead("status")
                ))
                .await;
            2
        }
        "handler" => {
            for (original, resolved) in [(901, false), (902, true), (903, false)] {
                scene
                    .db
                    .execute(&format!(
                        "INSERT INTO outbox_event_dlq (original_event_id, event_type,
                             aggregate_type, aggregate_id, payload, error_message, failed_at,
                             retry_count, resolved, created_at, updated_at)
                         VALUES ({original}, 'OrderPlaced', 'order', 'o-{original}', '{{}}',
                             'gave up', NOW(), 5, {resolved}, NOW(), NOW())"
                    ))
                    .await;
            }
            2
        }
        _ => 0,
    };
    (due, letters)
}

async fn rows_and_dead_letters_that_were_there_are_imported_once(place: Place, old: Old) {
    let Some(scene) = with_old_table(place, old, &old.settings()).await else { return };
    let (due, letters) = with_a_past(&scene, old).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    // Written after the triggers were made: an event already, though its row is due as well.
    scene.db.execute(&old.insert(100, None)).await;
    let before = scene.old_letters(old, "1 = 1").await;

    let adopt = ["outbox", "adopt", "orders", "--json"];
    let dry = scene.site.run(&[&adopt[..], &["--dry-run"]].concat()).await.exits(0).json();
    let found = (&dry["events"], &dry["dead_letters"], &dry["dry_run"]);
    assert_eq!(found, (&due.into(), &letters.into(), &true.into()), "{dry}");
    assert_eq!(scene.db.count("").await, 1, "a dry run changes nothing");
    let done = scene.site.run(&adopt).await.exits(0).json();
    assert_eq!((&done["events"], &done["dead_letters"]), (&due.into(), &letters.into()), "{done}");
    let again = scene.site.run(&adopt).await.exits(0).json();
    assert_eq!((&again["events"], &again["dead_letters"]), (&0.into(), &0.into()), "{again}");
    assert_eq!(scene.old_letters(old, "1 = 1").await, before, "none is written back");
    assert_eq!(scene.dead_letters().await.len(), letters);

    let daemon = scene.site.start().await;
    scene.drained().await;
    assert_eq!(scene.identities(), due + 1);
    if letters > 0 {
        let shown = &scene.dead_letters().await[0];
        assert_eq!(
            (&shown["error_message"], &shown["reason"]),
            (&"gave up".into(), &"exhausted".into())
        );
        assert_eq!(scene.json(&["dlq", "retry", "--all"]).await["done"], letters);
        scene.drained().await;
    }
    daemon.stop().await;
    // Resolved letters of the outbox are cleaned up one day; their copies there do not come back.
    scene.db.execute(&format!("DELETE FROM {}_dlq", scene.db.outbox.table())).await;
    let later = scene.site.run(&adopt).await.exits(0).json();
    assert_eq!((&later["events"], &later["dead_letters"]), (&0.into(), &0.into()), "{later}");
    assert_eq!(scene.identities(), due + 1 + letters);
    scene.balances(due + 1 + letters, 0).await;
}

async fn an_import_that_is_killed_is_begun_again_and_doubles_nothing(place: Place, old: Old) {
    const ROWS: usize = 3_000;
    let Some(scene) = with_old_table(place, old, &old.settings()).await else { return };
    let mut tx = scene.db.begin().await;
    for number in 0..ROWS {
        tx.execute(&old.insert(number, None)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    // Killed in a step: the last row of the first window is an event that is not committed yet.
    let import = scene.site.begin(&["outbox", "adopt", "orders"]);
    eventually("the import has begun", async || (scene.db.count("").await > 0).then_some(())).await;
    import.signalled("KILL").await;
    let taken = scene.db.count("").await;
    assert_eq!(taken % 1_000, 0, "a step is whole, or nothing");
    // Two at once: each finds what the other has taken.
    let adopt = ["outbox", "adopt", "orders", "--json"];
    let (one, other) = tokio::join!(scene.site.run(&adopt), scene.site.run(&adopt));
    let events = |ran: postrider_testkit::Ran| ran.exits(0).json()["events"].as_i64().unwrap();
    assert_eq!(taken + events(one) + events(other), ROWS as i64);
    assert_eq!(scene.db.count("").await, ROWS as i64);
    scene.target.answer(Answer::ok());
    let daemon = scene.site.start().await;
    scene.drained().await;
    daemon.stop().await;
    let calls: BTreeMap<String, u32> = scene.target.taken().into_iter().collect();
    assert_eq!(calls.len(), ROWS);
    assert!(calls.values().all(|count| *count == 1), "each once");
    scene.shows(old, old.delivered, ROWS as i64).await;
    scene.balances(ROWS, 0).await;
}
