//! Adopted tables: rules of theirs that an event's life would break are refused by `migrate`.

use crate::adopted_stage::{by_hand, is_postgres};
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, postgres_next, mariadb, mariadb_next, mysql: {
    rules_that_cannot_be_kept_are_refused,
});

mod mariadb_and_mysql {
    crate::on_stores!(mariadb, mysql: { an_engine_without_transactions_is_refused });
    use super::an_engine_without_transactions_is_refused;
}

mod postgres_alone {
    crate::scene::tests!(postgres { a_payload_that_does_not_keep_its_text_is_refused_with_a_hash });
}

fn settings(more: &str) -> Settings {
    by_hand(&format!(
        "table = 'ruled'
         columns = {{ id = 'id', aggregate_id = 'k', payload = 'body', status = 'state', \
             updated_at = 'changed' {more} }}
         constants = {{ aggregate_type = 'a', event_type = 'e' }}
         [dead_letters]
         table = 'ruled_dlq'
         columns = {{ id = 'id', original_id = 'row_id', payload = 'body' }}"
    ))
}

/// Makes both tables with these rules, and what a migration says to them.
async fn migrate(scene: &Scene, rule: &str, rule_of_letters: &str) -> postrider_testkit::Ran {
    let (id, time) = match is_postgres(&scene.db) {
        true => ("BIGSERIAL PRIMARY KEY", "TIMESTAMP"),
        false => ("BIGINT AUTO_INCREMENT PRIMARY KEY", "DATETIME"),
    };
    for statement in [
        "DROP TABLE IF EXISTS ruled_dlq".to_owned(),
        "DROP TABLE IF EXISTS ruled".to_owned(),
        format!(
            "CREATE TABLE ruled (id {id}, k VARCHAR(20), body TEXT NOT NULL,
                 state VARCHAR(20) NOT NULL DEFAULT 'PENDING', changed {time}, n INT {rule})"
        ),
        format!(
            "CREATE TABLE ruled_dlq (id {id}, row_id BIGINT NOT NULL, body TEXT NOT NULL
                 {rule_of_letters})"
        ),
    ] {
        scene.db.execute(&statement).await;
    }
    scene.site.run(&["migrate"]).await
}

async fn rules_that_cannot_be_kept_are_refused(place: Place) {
    let Some(scene) = Scene::open_empty(place, &settings("")).await else { return };
    let words = ["PENDING", "FAILED", "COMPLETED", "DEAD_LETTER"].map(|word| format!("'{word}'"));
    let some = words.join(", ");
    let rule = format!(", CONSTRAINT words CHECK (state IN ({some}))");
    let _ = migrate(&scene, &rule, "").await.exits(1).says(&[
        "table `ruled`",
        "`words`",
        "\"PROCESSING\"",
        "states.processing",
    ]);
    let again = migrate(&scene, "", ", CONSTRAINT once UNIQUE (row_id)").await.exits(1);
    let _ = again.says(&["table `ruled_dlq`", "once", "row_id", "sent again", "drop it"]);
    let key = ", CONSTRAINT row_there FOREIGN KEY (row_id) REFERENCES ruled (id)";
    let _ = migrate(&scene, "", key).await.exits(1).says(&["ruled_dlq", "row_there", "drop it"]);

    // What can be kept is.
    let rule = format!(
        ", CONSTRAINT words CHECK (state IN ({some}, 'PROCESSING')),
         CONSTRAINT pairs CHECK (n > 0 OR state <> 'COMPLETED')"
    );
    let _ = migrate(&scene, &rule, ", CONSTRAINT pair UNIQUE (id, row_id)").await.exits(0);
}

async fn an_engine_without_transactions_is_refused(place: Place) {
    let Some(scene) = Scene::open_empty(place, &settings("")).await else { return };
    let _ = migrate(&scene, "", "").await.exits(0);
    for table in ["ruled", "ruled_dlq"] {
        scene.db.execute(&format!("ALTER TABLE {table} ENGINE = MyISAM")).await;
        let refused = scene.site.run(&["migrate"]).await.exits(1);
        let _ = refused.says(&[&format!("table `{table}`"), "MyISAM", "ENGINE = InnoDB"]);
        scene.db.execute(&format!("ALTER TABLE {table} ENGINE = InnoDB")).await;
    }
}

async fn a_payload_that_does_not_keep_its_text_is_refused_with_a_hash(place: Place) {
    let hashed = settings(", content_hash = 'hash'");
    let Some(scene) = Scene::open_empty(place, &hashed).await else { return };
    let _ = migrate(&scene, ", hash VARCHAR(64)", "").await.exits(0);
    let make = "ALTER TABLE ruled ALTER COLUMN body TYPE jsonb USING body::jsonb;
        ALTER TABLE ruled_dlq ALTER COLUMN body TYPE jsonb USING body::jsonb";
    scene.db.run_script(make).await;
    let refused = scene.site.run(&["migrate"]).await.exits(1);
    let _ = refused.says(&["table `ruled`", "`body`", "jsonb", "content_hash"]);
    scene.configure(&settings(""));
    let _ = scene.site.run(&["migrate"]).await.exits(0);
}
