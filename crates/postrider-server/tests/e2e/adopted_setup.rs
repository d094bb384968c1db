//! Adopted tables: what a migration makes, refuses and removes.

use std::time::Duration;

use postrider_store::StoreKind;
use postrider_testkit::{Answer, eventually};
use sha2::{Digest, Sha256};
use toml::Table;

use crate::adopted_stage::{
    API_CALL, BROKER, DEBEZIUM, DEBEZIUM_MYSQL, HANDLER, NOTIFICATION, Old, adopted, is_postgres,
    with_old_table,
};
use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, postgres_next, mariadb, mariadb_next, mysql: {
    the_printed_statements_are_what_a_migration_runs,
    doctor_names_a_missing_trigger_and_a_migration_makes_it_again,
    an_adoption_ends_with_the_configuration_or_the_outbox_and_the_table_stays,
    rows_of_two_databases_have_different_identities,
    a_mapping_that_does_not_fit_is_refused_with_the_cure,
    times_are_on_the_clock_of_the_table,
    delivered_rows_are_deleted_after_the_retention,
    a_table_that_is_described_by_hand_is_served_with_what_it_lacks,
});

mod mariadb_and_mysql {
    crate::on_stores!(mariadb, mysql: { the_answer_to_a_call_is_put_into_its_row });
    use super::the_answer_to_a_call_is_put_into_its_row;
}

mod postgres_alone {
    crate::scene::tests!(postgres { a_writer_needs_no_right_but_to_insert });
}

mod sqlite {
    crate::scene::tests!(sqlite { sqlite_refuses });
}

/// The table that the store of this place has in production.
fn old(place: Place) -> Old {
    if place.kind == StoreKind::Postgres { BROKER } else { HANDLER }
}

async fn the_printed_statements_are_what_a_migration_runs(place: Place) {
    let old = old(place);
    let Some(scene) = with_old_table(place, old, &old.settings()).await else { return };
    let printed = scene.site.run(&["migrate", "--print"]).await.exits(0);
    let shown = ["orders_outbox_adopt_append", "orders_outbox_adopt_gone", "GRANT TRIGGER"];
    let printed = printed.shows(&shown).stdout;
    assert_eq!(scene.old_rows(old, "1 = 1").await, 0, "and nothing is changed");
    scene.db.run_script(&printed).await;
    let told = scene.site.run(&["doctor", "--json"]).await.json();
    let findings = told.as_array().unwrap();
    let table = format!("adopted table {}", old.table);
    let found = findings.iter().find(|finding| finding["subject"] == table.as_str());
    assert_eq!(found.unwrap()["verdict"], "ok", "{told:#}");
    let daemon = scene.site.start().await;
    scene.db.execute(&old.insert(1, None)).await;
    scene.shows(old, old.delivered, 1).await;
    daemon.stop().await;
    scene.balances(1, 0).await;
}

async fn doctor_names_a_missing_trigger_and_a_migration_makes_it_again(place: Place) {
    let old = old(place);
    let Some(scene) = adopted(place, old).await else { return };
    let trigger = "orders_outbox_adopt_append";
    let drop = match is_postgres(&scene.db) {
        true => format!("DROP TRIGGER {trigger} ON {}", old.table),
        false => format!("DROP TRIGGER {trigger}"),
    };
    scene.db.execute(&drop).await;
    let told = scene.site.run(&["doctor"]).await.exits(1);
    let _ = told.shows(&[trigger, old.table, "out of step", "postrider migrate"]);
    let _ = scene.site.run(&["run", "--check"]).await.exits(1).says(&[trigger, "out of step"]);
    let daemon = scene.site.start().await;
    daemon.logs("an adopted table is out of step").await;
    daemon.stop().await;
    // Not seen by the trigger, and still in the table.
    scene.db.execute(&old.insert(1, None)).await;
    assert_eq!(scene.db.count("").await, 0);
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let found = scene.site.run(&["outbox", "adopt", "orders", "--json"]).await.exits(0).json();
    assert_eq!(found["events"], 1);
    let told = scene.site.run(&["doctor"]).await;
    assert!(!told.stdout.contains(trigger), "{told:?}");
}

async fn an_adoption_ends_with_the_configuration_or_the_outbox_and_the_table_stays(place: Place) {
    let old = old(place);
    let Some(scene) = adopted(place, old).await else { return };
    let again = scene.site.run(&["migrate"]).await.exits(0);
    assert!(again.stdout.contains("serves table"), "a second run changes nothing: {again:?}");
    scene.configure(&Settings::new());
    let ended = scene.site.run(&["migrate"]).await.exits(0);
    assert!(ended.stdout.contains("no table of others any more"), "{ended:?}");
    scene.db.execute(&old.insert(1, None)).await;
    assert_eq!((scene.db.count("").await, scene.old_rows(old, "1 = 1").await), (0, 1));
    let refused = scene.site.run(&["outbox", "adopt", "orders"]).await.exits(2);
    let _ = refused.says(&["orders", "[outbox.adopt]"]);

    scene.configure(&old.settings());
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.db.execute(&old.insert(2, None)).await;
    assert_eq!(scene.db.count("").await, 1, "adopted again");
    scene.db.store.drop_outbox(&scene.db.outbox).await.unwrap();
    scene.db.execute(&old.insert(3, None)).await;
    assert_eq!(scene.old_rows(old, "1 = 1").await, 3, "its writers do not notice");
}

/// The first part of the identity of the newest event.
async fn newest_prefix(scene: &Scene) -> String {
    let newest = scene.db.integer("SELECT max(id) FROM orders_outbox").await;
    scene.db.column(newest, "CAST(event_id AS CHAR(36))").await.unwrap()[..13].to_owned()
}

/// Both tables number their rows from 1, and one receiver may get the events of both.
async fn rows_of_two_databases_have_different_identities(place: Place) {
    let old = old(place);
    let Some(scene) = adopted(place, old).await else { return };
    let Some(other) = adopted(place, old).await else { return };
    scene.db.execute(&old.insert(1, None)).await;
    other.db.execute(&old.insert(1, None)).await;
    let prefix = newest_prefix(&scene).await;
    assert_ne!(prefix, newest_prefix(&other).await);

    // It is kept through the end of an adoption.
    scene.configure(&Settings::new());
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.configure(&old.settings());
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.db.execute(&old.insert(2, None)).await;
    assert_eq!(newest_prefix(&scene).await, prefix);

    // As an older program left it: identities on their way keep their form, and doctor tells.
    scene.db.execute("DROP TABLE postrider_adopted_ids").await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.db.execute(&old.insert(3, None)).await;
    let of_name = hex(&Sha256::digest("orders"));
    assert_eq!(newest_prefix(&scene).await, format!("{}-{}", &of_name[..8], &of_name[8..12]));
    let told = scene.site.run(&["doctor"]).await;
    let _ = told.shows(&["identities of adopted table", "postrider_adopted_ids"]);
    let told = other.site.run(&["doctor"]).await;
    assert!(!told.stdout.contains("postrider_adopted_ids"), "{told:?}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A change of the mapping, and what the refusal must say.
async fn refused(scene: &Scene, settings: &Settings, words: &[&str]) {
    scene.configure(settings);
    let _ = scene.site.run(&["migrate"]).await.exits(1).says(words);
}

async fn a_mapping_that_does_not_fit_is_refused_with_the_cure(place: Place) {
    let old = old(place);
    let Some(scene) = with_old_table(place, old, &old.settings()).await else { return };
    let columns = |column: &str, name: &str| {
        let mut adopt = old.full();
        let columns = adopt["columns"].as_table_mut().unwrap();
        columns.insert(column.to_owned(), name.into());
        // What is written has a column of its own.
        let same = |value: &toml::Value| value.as_str() == Some(name);
        columns.retain(|key, value| key == column || column != "retry_count" || !same(value));
        old.settings().outbox("adopt", toml::Value::Table(adopt))
    };
    let unknown = old.settings_with("table", "no_such_table");
    refused(&scene, &unknown, &["no_such_table", "[outbox.adopt]"]).await;
    let words = [old.table, "no_such_column", "columns.payload", "event_type"];
    refused(&scene, &columns("payload", "no_such_column"), &words).await;
    let error = old.error.unwrap();
    let words = [old.table, error, "columns.retry_count", "an integer"];
    refused(&scene, &columns("retry_count", error), &words).await;
    let words = ["aggregate_id", "request_id", "not unique"];
    refused(&scene, &columns("request_id", "aggregate_id"), &words).await;
    refused(&scene, &columns("id", "aggregate_id"), &["aggregate_id", "cannot be the id"]).await;
    let zone = old.settings_with("time_zone", "Mars/Base");
    refused(&scene, &zone, &["Mars/Base", "+09:00"]).await;
    let mut states = Table::new();
    states.insert("completed".to_owned(), "SENT TO WHERE IT HAD TO GO".into());
    if old.form == "broker" {
        let wide = old.settings_with("states", toml::Value::Table(states));
        refused(&scene, &wide, &["status", "SENT TO WHERE", "states.completed"]).await;
    }
    if old.letters.is_some() {
        let mut adopt = old.full();
        let letters = adopt["dead_letters"]["columns"].as_table_mut().unwrap();
        letters.remove("failed_at");
        let settings = old.settings().outbox("adopt", toml::Value::Table(adopt));
        refused(&scene, &settings, &["outbox_event_dlq", "failed_at", "no default"]).await;
    }
    let own = if is_postgres(&scene.db) { "current_schema()" } else { "DATABASE()" };
    let made = format!(
        "SELECT count(*) FROM information_schema.triggers
         WHERE trigger_name LIKE '%adopt%' AND trigger_schema = {own}"
    );
    let made = scene.db.integer(&made).await;
    assert_eq!(made, 0, "nothing is made for a mapping that does not fit");
    scene.configure(&old.settings());
    let _ = scene.site.run(&["migrate"]).await.exits(0);
}

async fn times_are_on_the_clock_of_the_table(place: Place) {
    let old = old(place);
    let settings = old.settings_with("time_zone", "+09:00");
    let Some(scene) = with_old_table(place, old, &settings).await else { return };
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    // Two hours old; the second one is for later, where the table can say so.
    let (inserts, minutes) = match is_postgres(&scene.db) {
        true => (
            "INSERT INTO transfer_events (aggregate_type, aggregate_id, event_type, payload,
                 created_at, next_retry_at)
             SELECT 'account', 'acc-' || hours, 'TransferCompleted', '{}',
                 local - interval '2 hours', local + hours * interval '1 hour'
             FROM (SELECT now() AT TIME ZONE 'Asia/Seoul' AS local) AS clock,
                 unnest(ARRAY[-1, 1]) AS hours",
            "SELECT round(extract(epoch FROM now() - created_at) / 60)::bigint
             FROM orders_outbox WHERE next_retry_at IS NULL",
        ),
        false => (
            "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload,
                 created_at, updated_at)
             VALUES ('OrderPlaced', 'order', 'o-1', '{}',
                 UTC_TIMESTAMP() + INTERVAL 7 HOUR, UTC_TIMESTAMP() + INTERVAL 9 HOUR)",
            "SELECT TIMESTAMPDIFF(MINUTE, created_at, UTC_TIMESTAMP()) FROM orders_outbox",
        ),
    };
    scene.db.execute(inserts).await;
    assert_eq!(scene.db.integer(minutes).await, 120, "two hours old");
    if is_postgres(&scene.db) {
        let wait = "SELECT round(extract(epoch FROM next_retry_at - now()) / 60)::bigint
                    FROM orders_outbox WHERE next_retry_at IS NOT NULL";
        assert_eq!(scene.db.integer(wait).await, 60, "due in an hour");
    }
    let daemon = scene.site.start().await;
    scene.shows(old, old.delivered, 1).await;
    daemon.stop().await;
    let near = match is_postgres(&scene.db) {
        true => "abs(extract(epoch FROM (now() AT TIME ZONE 'Asia/Seoul') - published_at)) < 300",
        false => {
            "ABS(TIMESTAMPDIFF(SECOND, processed_at, UTC_TIMESTAMP() + INTERVAL 9 HOUR)) < 300"
        }
    };
    assert_eq!(scene.old_rows(old, near).await, 1, "delivered now, on the clock of the table");
}

async fn delivered_rows_are_deleted_after_the_retention(place: Place) {
    let old = old(place);
    let Some(scene) = adopted(place, old).await else { return };
    for number in 0..7 {
        scene.db.execute(&old.insert(number, None)).await;
    }
    let daemon = scene.site.start().await;
    scene.shows(old, old.delivered, 7).await;
    daemon.stop().await;
    let time = if is_postgres(&scene.db) { "published_at" } else { "processed_at" };
    let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
    let oldest = format!("{} <= 5", old.id);
    scene.db.age(old.table, time, days(8), &oldest).await;
    let mut adoption = old.adoption(true);
    if old.form == "broker" {
        adoption.states.completed = "PUBLISHED".to_owned();
    }
    let planned = scene.site.run(&["outbox", "adopt", "orders", "--dry-run"]).await.exits(0);
    let _ = planned.shows(&["5 rows", old.table, "7days", "clean-up", "`retention`"]);
    let dry = ["outbox", "adopt", "orders", "--dry-run", "--json"];
    assert_eq!(scene.site.run(&dry).await.exits(0).json()["expired"], 5);
    let (store, outbox) = (&scene.db.store, &scene.db.outbox);
    let cleaned = store.clean_adopted(outbox, &adoption, days(7), 2).await.unwrap();
    assert_eq!(cleaned, 5, "in chunks of two");
    assert_eq!(scene.site.run(&dry).await.exits(0).json()["expired"], 0);
    assert_eq!(scene.old_rows(old, "1 = 1").await, 2);
    let kept = old.adoption(false);
    assert_eq!(store.clean_adopted(outbox, &kept, days(0), 2).await.unwrap(), 0);
}

/// Integer keys, constants, JSON, headers that are none, and a request id whose row is gone.
async fn a_table_that_is_described_by_hand_is_served_with_what_it_lacks(place: Place) {
    let settings = Settings::new().outbox("preset", "broker").outbox(
        "adopt",
        toml::from_str::<Table>(
            "table = 'Order_Events'\n[columns]\nid = 'No'\naggregate_id = 'customer'\n\
             payload = 'body'\nheaders = 'extra'\nrequest_id = 'request'\n\
             [constants]\naggregate_type = 'customer'\nevent_type = 'OrderChanged'",
        )
        .unwrap(),
    );
    let Some(scene) = Scene::open_empty(place, &settings).await else { return };
    let (quote, id, body) = match is_postgres(&scene.db) {
        true => ('"', "BIGSERIAL", "jsonb"),
        false => ('`', "BIGINT AUTO_INCREMENT", "JSON"),
    };
    let table = format!("{quote}Order_Events{quote}");
    let make = format!(
        "CREATE TABLE {table} ({quote}No{quote} {id} PRIMARY KEY, customer INT NOT NULL,
             body {body}, extra TEXT, request VARCHAR(50) NOT NULL UNIQUE)"
    );
    scene.db.execute(&make).await;
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    let insert = |request: &str, body: &str, extra: &str| {
        format!(
            "INSERT INTO {table} (customer, body, extra, request)
             VALUES (77, {body}, {extra}, '{request}')"
        )
    };
    scene.db.execute(&insert("a", "'{\"n\": 1}'", "'{\"x-kind\": \"new\"}'")).await;
    scene.db.execute(&insert("b", "NULL", "'not JSON at all'")).await;
    scene.db.execute(&insert("c", "'[]'", "NULL")).await;
    let daemon = scene.site.start().await;
    eventually("delivered rows are gone, because nothing in them could be marked", async || {
        let rows = scene.db.integer(&format!("SELECT count(*) FROM {table}")).await;
        (rows == 0).then_some(())
    })
    .await;
    daemon.stop().await;
    let received = scene.target.received();
    assert!(received.iter().all(|request| request.path == "/orders/77"));
    let named = |name: &str| received.iter().filter(|r| !r.header(name).is_empty()).count();
    assert_eq!((named("x-kind"), named("headers")), (1, 1));
    assert!(received.iter().any(|request| request.header("headers") == "not JSON at all"));
    // Its own index has forgotten it, the outbox has not: the same answer as before.
    let repeat = scene.db.try_execute(&insert("a", "NULL", "NULL")).await.unwrap_err();
    let code = repeat.as_database_error().and_then(|error| error.code()).unwrap().into_owned();
    assert!(["23505", "23000"].contains(&code.as_str()), "{code}: {repeat}");
    scene.balances(3, 0).await;
}

async fn the_answer_to_a_call_is_put_into_its_row(place: Place) {
    let old = API_CALL;
    let settings = old.settings().outbox("on_success", "archive").sink("keep_response", true);
    let Some(scene) = with_old_table(place, old, &settings).await else { return };
    let _ = scene.site.run(&["migrate"]).await.exits(0);
    scene.target.answer(Answer::status(200).body("{\"level\": 7}"));
    let daemon = scene.site.start().await;
    scene.db.execute(&old.insert(1, None)).await;
    scene.shows(old, Some("COMPLETED"), 1).await;
    daemon.stop().await;
    assert_eq!(scene.old_rows(old, "response_payload = '{\"level\": 7}'").await, 1);
    let shown = scene.site.run(&["events", "list", "--status", "completed", "--json"]).await.json();
    let id = shown[0]["id"].to_string();
    let _ = scene.site.run(&["events", "show", &id]).await.exits(0).shows(&["{\"level\": 7}"]);
    scene.balances(1, 0).await;
}

/// What the outbox keeps is none of the old program's business, and none of its rights.
async fn a_writer_needs_no_right_but_to_insert(place: Place) {
    let Some(scene) = adopted(place, BROKER).await else { return };
    let mut tx = scene.db.begin().await;
    for statement in [
        "CREATE ROLE old_program",
        "GRANT INSERT ON transfer_events TO old_program",
        "GRANT USAGE ON SEQUENCE transfer_events_event_id_seq TO old_program",
        "SET LOCAL ROLE old_program",
        &BROKER.insert(1, None),
        "RESET ROLE",
    ] {
        tx.execute(statement).await.unwrap();
    }
    assert_eq!(tx.execute("DELETE FROM orders_outbox").await.unwrap(), 1);
    tx.rollback().await.unwrap();
}

async fn sqlite_refuses(place: Place) {
    for old in [API_CALL, NOTIFICATION, DEBEZIUM, DEBEZIUM_MYSQL] {
        let Some(scene) = Scene::open_empty(place, &old.settings()).await else { return };
        for command in [&["migrate"][..], &["migrate", "--print"], &["run"]] {
            let refused = scene.site.run(command).await.exits(1);
            let _ = refused.says(&[old.table, "SQLite", "PostgreSQL, MySQL or MariaDB"]);
        }
    }
}
