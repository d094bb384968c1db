//! Adopted tables without a state, whose dead-letter table tells what was given up.

use postrider_testkit::Answer;

use crate::adopted_stage::{by_hand, is_postgres};
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, postgres_next, mariadb, mariadb_next, mysql: {
    a_row_that_only_its_open_letter_tells_was_given_up_is_a_dead_letter_and_never_an_event,
    letters_that_came_between_two_adoptions_are_imported_and_copies_of_our_own_are_not,
    letters_that_came_while_another_table_was_served_are_imported,
    nothing_of_an_adoption_that_ended_or_failed_half_way_is_left,
});

/// Tasks that are processed or not, and letters that may be resolved.
const TASKS: &str = "table = 'tasks'
    [columns]
    id = 'id'
    aggregate_id = 'k'
    payload = 'body'
    processed = 'done'
    delivered_at = 'done_at'
    [constants]
    aggregate_type = 'task'
    event_type = 'TaskPlaced'";

/// The same, with the table of letters, which knows `resolved` or does not.
fn with_letters(resolved: bool) -> Settings {
    let resolved = if resolved { "resolved = 'resolved'" } else { "" };
    by_hand(&format!(
        "{TASKS}
         [dead_letters]
         table = 'tasks_dlq'
         [dead_letters.columns]
         id = 'id'
         original_id = 'task'
         aggregate_id = 'k'
         payload = 'body'
         {resolved}"
    ))
}

async fn opened(place: Place, settings: &Settings) -> Option<Scene> {
    let scene = Scene::open_empty(place, settings).await?;
    let (id, time) = match is_postgres(&scene.db) {
        true => ("BIGSERIAL", "TIMESTAMP"),
        false => ("BIGINT AUTO_INCREMENT", "DATETIME"),
    };
    let make = format!(
        "CREATE TABLE tasks (id {id} PRIMARY KEY, k VARCHAR(9) NOT NULL, body TEXT NOT NULL,
             done BOOLEAN NOT NULL DEFAULT FALSE, done_at {time});
         CREATE TABLE tasks_dlq (id {id} PRIMARY KEY, task BIGINT NOT NULL, k VARCHAR(9) NOT NULL,
             body TEXT NOT NULL, resolved BOOLEAN NOT NULL DEFAULT FALSE)"
    );
    scene.db.execute(&make).await;
    Some(scene)
}

impl Scene {
    /// A row of the table of tasks, as its programs insert it.
    async fn task(&self, key: &str) {
        self.db.execute(&format!("INSERT INTO tasks (k, body) VALUES ('{key}', '{{}}')")).await;
    }

    /// A letter that another relay wrote.
    async fn letter(&self, task: usize, resolved: bool) {
        let insert = format!(
            "INSERT INTO tasks_dlq (task, k, body, resolved) VALUES ({task}, 'x', '{{}}', \
             {resolved})"
        );
        self.db.execute(&insert).await;
    }

    async fn migrate(&self, settings: &Settings) {
        self.configure(settings);
        let _ = self.site.run(&["migrate"]).await.exits(0);
    }
}

async fn a_row_that_only_its_open_letter_tells_was_given_up_is_a_dead_letter_and_never_an_event(
    place: Place,
) {
    let settings = with_letters(true);
    let Some(scene) = opened(place, &settings).await else { return };
    // Given up and open, the same once more, dealt with and due again, never tried.
    for (task, letter) in [(1, Some(false)), (2, Some(false)), (3, Some(true)), (4, None)] {
        scene.task(&format!("t-{task}")).await;
        if let Some(resolved) = letter {
            scene.letter(task, resolved).await;
        }
    }
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (2, 2));
    assert_eq!(scene.takes().await, (0, 0));
    let daemon = scene.site.start().await;
    scene.drained().await;
    assert_eq!(scene.identities(), 2, "those that were due");
    // Somebody resolves one by hand, and its letter is cleaned up one day.
    let letters = scene.dead_letters().await;
    let ids: Vec<String> = letters.iter().map(|letter| letter["id"].to_string()).collect();
    assert_eq!(scene.json(&["dlq", "resolve", &ids[0]]).await["done"], 1);
    assert_eq!(scene.json(&["dlq", "retry", &ids[1]]).await["done"], 1);
    scene.drained().await;
    daemon.stop().await;
    let rows = "SELECT count(*) FROM tasks WHERE done";
    assert_eq!(scene.db.integer(rows).await, 3, "the one that was sent again is marked");
    scene.db.execute(&format!("DELETE FROM {}_dlq", scene.db.outbox.table())).await;
    assert_eq!(scene.takes().await, (0, 0), "what was resolved by hand is not sent");
    assert_eq!(scene.identities(), 3);
    scene.balances(3, 0).await;
}

async fn letters_that_came_between_two_adoptions_are_imported_and_copies_of_our_own_are_not(
    place: Place,
) {
    // A table that does not know `resolved`: nothing in it tells which letters are dealt with.
    let settings = with_letters(false);
    let Some(scene) = opened(place, &settings).await else { return };
    scene.letter(901, false).await;
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (0, 1));
    scene.target.answer(Answer::status(422));
    scene.task("own").await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(2).await;
    daemon.stop().await;
    assert_eq!(scene.json(&["dlq", "resolve", "--all"]).await["done"], 2);
    scene.db.execute(&format!("DELETE FROM {}_dlq", scene.db.outbox.table())).await;

    // The old relay serves it again for a while, and gives up two.
    scene.migrate(&Settings::new().outbox("preset", "broker")).await;
    scene.letter(902, false).await;
    scene.letter(903, false).await;
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (0, 2), "neither the first nor the copy of our own");
    assert_eq!(scene.takes().await, (0, 0));
}

async fn letters_that_came_while_another_table_was_served_are_imported(place: Place) {
    let settings = with_letters(true);
    let Some(scene) = opened(place, &settings).await else { return };
    scene.letter(901, false).await;
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (0, 1));
    // Without its letters for a while.
    scene.migrate(&by_hand(TASKS)).await;
    scene.letter(902, false).await;
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (0, 1));
    // A migration that changes nothing takes copies of our own for nothing else.
    scene.target.answer(Answer::status(422));
    scene.task("own").await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(3).await;
    daemon.stop().await;
    scene.db.execute(&format!("DELETE FROM {}_dlq", scene.db.outbox.table())).await;
    scene.migrate(&settings).await;
    assert_eq!(scene.takes().await, (0, 0));
}

async fn nothing_of_an_adoption_that_ended_or_failed_half_way_is_left(place: Place) {
    let settings = with_letters(true);
    let Some(scene) = opened(place, &settings).await else { return };
    let left = match is_postgres(&scene.db) {
        true => {
            "SELECT (SELECT count(*) FROM pg_proc WHERE proname LIKE '%adopt%')
                  + (SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'orders%adopted'
                         AND schemaname = current_schema())"
        }
        false => {
            "SELECT (SELECT count(*) FROM information_schema.TRIGGERS
                     WHERE TRIGGER_SCHEMA = DATABASE() AND TRIGGER_NAME LIKE '%adopt%')
                  + (SELECT count(*) FROM information_schema.STATISTICS
                     WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME LIKE 'orders%adopted')"
        }
    };
    let none = Settings::new().outbox("preset", "broker");
    scene.migrate(&settings).await;
    assert!(scene.db.integer(left).await > 1);
    scene.migrate(&none).await;
    assert_eq!(scene.db.integer(left).await, 0);
    // MariaDB keeps what was made before a failure: as if it had died after the first trigger.
    scene.migrate(&settings).await;
    if !is_postgres(&scene.db) {
        for end in ["append", "gone", "dead", "resolved"] {
            scene.db.execute(&format!("DROP TRIGGER IF EXISTS orders_outbox_adopt_{end}")).await;
        }
    }
    scene.migrate(&none).await;
    assert_eq!(scene.db.integer(left).await, 0);
}
