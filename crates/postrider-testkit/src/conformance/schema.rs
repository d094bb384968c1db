//! Tables: created once, created again, created by hand; too new, or missing.

use std::sync::Arc;

use postrider::{Inbox, Incoming, Outbox};
use postrider_store::{
    Delivery, OnSuccess, OutboxSpec, SchemaState, StoreError, StoreKind, fingerprint, versions,
};

use super::steps::{ids, order};
use crate::TestDb;

fn spec(name: &str) -> OutboxSpec {
    OutboxSpec::new(Outbox::new(name).unwrap())
}

/// Before migrating, the state names what is missing; afterwards nothing is missing.
pub async fn an_empty_database_needs_a_migration_and_is_ready_after_it(db: TestDb) {
    let empty = db.another_empty().await;
    let outboxes = [empty.outbox.clone()];
    let before = empty.store.schema_state(&outboxes).await.unwrap();
    assert!(matches!(before, SchemaState::NeedsMigration(_)), "{before:?}");
    let done = empty.store.migrate(&[spec("orders")]).await.unwrap();
    assert!(done.iter().any(|line| line.contains("orders")), "says what it did: {done:?}");
    assert_eq!(empty.store.schema_state(&outboxes).await.unwrap(), SchemaState::Ready);
}

/// Migrating again changes nothing that exists.
pub async fn migrating_again_keeps_everything(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let appended = db.append(&[order(1), order(2), order(3).request_id("r")]).await;
    let claimed = db.claim(&relay, 1).await;
    db.move_to_dlq(&relay, &claimed[0], "no").await;
    for _ in 0..2 {
        db.store.migrate(&[spec("orders")]).await.unwrap();
    }
    assert_eq!((db.count("").await, db.count("_dlq").await, db.count("_keys").await), (2, 1, 1));
    assert_eq!(ids(&db.claim(&relay, 10).await), appended[1..]);
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 3, "counted once");
    db.append_orders(1).await;
    assert_eq!(db.store.statistics(&db.outbox).await.unwrap().appended, 4, "by one trigger");
    db.assert_balanced().await;
}

/// A deployment starts several processes at once, and each of them migrates.
pub async fn migrations_may_run_at_once(db: TestDb) {
    let empty = Arc::new(db.another_empty().await);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let db = Arc::clone(&empty);
            tokio::spawn(async move {
                db.store.migrate(&[spec("orders"), spec("extra")]).await.map_err(|e| e.to_string())
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let outboxes = [Outbox::new("orders").unwrap(), Outbox::new("extra").unwrap()];
    assert_eq!(empty.store.schema_state(&outboxes).await.unwrap(), SchemaState::Ready);
    let relay = empty.relay("relay-a").await;
    empty.append_orders(2).await;
    let claimed = empty.claim(&relay, 10).await;
    assert_eq!(empty.deliver(&relay, &claimed, OnSuccess::Archive).await, 2);
    empty.assert_balanced().await;
}

/// Outboxes of one database have their own rows, keys, ledgers and dead letters.
pub async fn two_outboxes_do_not_touch_each_other(db: TestDb) {
    let other = db.add_outbox(postrider_store::Dedupe::default()).await;
    let relay = db.relay("relay-a").await;
    db.append(&[order(1).request_id("r"), order(2)]).await;
    let across = db.append_to(&other, &[order(1).request_id("r")]).await;
    assert_eq!(across.len(), 1, "the same request id, in another outbox");

    let claimed = db.claim(&relay, 10).await;
    assert_eq!(claimed.len(), 2);
    db.move_to_dlq(&relay, &claimed[0], "no").await;
    db.deliver(&relay, &claimed[1..], OnSuccess::Delete).await;

    let here = db.store.statistics(&db.outbox).await.unwrap();
    assert_eq!((here.appended, here.delivered, here.dead, here.pending), (2, 1, 1, 0));
    let there = db.store.statistics(&other).await.unwrap();
    assert_eq!((there.appended, there.delivered, there.dead, there.pending), (1, 0, 0, 1));
    let db = db.with_outbox(other);
    assert_eq!((db.count("_dlq").await, db.count("_keys").await), (0, 1));
    assert_eq!(ids(&db.claim(&relay, 10).await), across);
    db.assert_balanced().await;
}

/// An outbox that was never migrated is named, and so is one that has another table.
pub async fn a_missing_or_moved_outbox_is_named(db: TestDb) {
    let missing = Outbox::new("letters").unwrap();
    let state = db.store.schema_state(&[db.outbox.clone(), missing]).await.unwrap();
    let SchemaState::NeedsMigration(message) = state else { panic!("{state:?}") };
    assert!(message.contains("letters"), "{message}");
    let moved = Outbox::with_table("orders", "elsewhere").unwrap();
    let state = db.store.schema_state(&[moved]).await.unwrap();
    let SchemaState::NeedsMigration(message) = state else { panic!("{state:?}") };
    assert!(message.contains("orders_outbox") && message.contains("elsewhere"), "{message}");
}

/// Tables made for newer programs are not changed, by checks or by migrations.
pub async fn tables_made_for_newer_programs_are_left_alone(db: TestDb) {
    let newer = versions::SCHEMA + 2;
    let update =
        |oldest| format!("UPDATE postrider_schema SET version = {newer}, oldest_relay = {oldest}");
    db.execute(&update(versions::SCHEMA)).await;
    let outboxes = [db.outbox.clone()];
    let state = db.store.schema_state(&outboxes).await.unwrap();
    assert_eq!(state, SchemaState::Ready, "newer, but made to be used by this program too");
    db.store.migrate(&[spec("orders")]).await.unwrap();
    let version = db.integer("SELECT max(version) FROM postrider_schema").await;
    assert_eq!(version, i64::from(newer), "an older program does not turn the version back");

    db.execute(&update(newer)).await;
    let state = db.store.schema_state(&outboxes).await.unwrap();
    let SchemaState::TooNew(message) = state else { panic!("{state:?}") };
    assert!(message.contains(&newer.to_string()), "{message}");
    let migrated = db.store.migrate(&[spec("orders")]).await;
    assert!(matches!(migrated, Err(StoreError::Schema(_))), "{migrated:?}");
    let oldest = db.integer("SELECT max(oldest_relay) FROM postrider_schema").await;
    assert_eq!(oldest, i64::from(newer));
}

/// A consumer's database has no outbox, but can be migrated too.
pub async fn a_consumers_database_without_an_outbox_is_migrated(db: TestDb) {
    let empty = db.another_empty().await;
    empty.store.migrate(&[]).await.unwrap();
    assert_eq!(empty.store.schema_state(&[]).await.unwrap(), SchemaState::Ready);
    let mut tx = empty.begin().await;
    let inbox = Inbox::new("fraud").unwrap();
    assert!(tx.receive(&inbox, &Incoming::new("e-1")).await.unwrap().is_new());
    tx.commit().await.unwrap();
}

/// The printed SQL, run by an administrator, creates a working outbox.
pub async fn the_printed_migration_makes_a_working_outbox(db: TestDb) {
    let empty = db.another_empty().await;
    let script = empty.store.migration_sql(&[spec("orders"), spec("extra")]);
    assert!(script.contains("GRANT"), "the rights of each role, or why there are none");
    empty.run_script(&script).await;

    let outboxes = [Outbox::new("orders").unwrap(), Outbox::new("extra").unwrap()];
    assert_eq!(empty.store.schema_state(&outboxes).await.unwrap(), SchemaState::Ready);
    let relay = empty.relay("relay-a").await;
    let id = empty.append(&[order(1).request_id("r")]).await[0];
    assert_eq!(empty.append(&[order(2).request_id("r")]).await, [id], "with its triggers");
    let claimed = empty.claim(&relay, 10).await;
    assert_eq!(empty.deliver(&relay, &claimed, OnSuccess::Archive).await, 1);
    assert_eq!(empty.store.statistics(&empty.outbox).await.unwrap().delivered, 1);
    empty.assert_balanced().await;
    empty.store.migrate(&[spec("orders")]).await.expect("and migrates on from there");
    empty.assert_balanced().await;
}

/// Tables of the first version get all additions, and their dead letters get fingerprints.
pub async fn tables_of_version_1_are_brought_up_to_date(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let letters = db.move_many_to_dlq(&relay, 3).await;
    let dlq = format!("{}_dlq", db.outbox.table());
    let indexes: &[&str] = match db.store.kind() {
        StoreKind::Postgres => &[],
        StoreKind::Mysql => &["kind", "groups", "event"],
        StoreKind::Sqlite => &["unseen", "groups", "event"],
    };
    for index in indexes {
        let on =
            if db.store.kind() == StoreKind::Mysql { format!(" ON {dlq}") } else { String::new() };
        db.execute(&format!("DROP INDEX {dlq}_{index}{on}")).await;
    }
    db.execute(&format!("ALTER TABLE {dlq} DROP COLUMN fingerprint")).await;
    db.drop_guard().await;
    for end in ["", "_archive"] {
        db.execute(&format!("ALTER TABLE {}{end} DROP COLUMN response", db.outbox.table())).await;
    }
    for statement in [
        "DROP TABLE postrider_jobs",
        "DROP TABLE postrider_pauses",
        "DROP TABLE postrider_buffer_batches",
        "DROP TABLE postrider_buffer_ledger",
        "DROP TABLE postrider_inbox",
        "DROP TABLE postrider_inbox_ledger",
        "DROP TABLE postrider_inbox_dlq",
        "UPDATE postrider_schema SET version = 1",
        "UPDATE postrider_outboxes SET version = 1",
    ] {
        db.execute(statement).await;
    }
    let outboxes = [db.outbox.clone()];
    let state = db.store.schema_state(&outboxes).await.unwrap();
    assert!(matches!(&state, SchemaState::NeedsMigration(what) if what.contains('1')), "{state:?}");
    db.store.migrate(&[OutboxSpec::new(db.outbox.clone())]).await.unwrap();
    assert_eq!(db.store.schema_state(&outboxes).await.unwrap(), SchemaState::Ready);
    let letter = db.store.dead_letter(&db.outbox, letters[0]).await.unwrap().unwrap();
    assert_eq!(letter.fingerprint, fingerprint(letter.reason, &letter.error_message));
    assert_eq!(db.store.fingerprint_dead_letters(&db.outbox, 10).await.unwrap(), 0);
    assert!(db.store.pauses().await.unwrap().is_empty());
    assert!(db.store.batch_states(&[uuid::Uuid::nil()]).await.unwrap().is_empty());
    assert!(db.store.consumer_ledgers().await.unwrap().is_empty());
    assert!(db.store.jobs(&Default::default(), None, 10).await.unwrap().is_empty());
    db.append_orders(1).await;
    let mut delivered = [Delivery::from(&db.claim(&relay, 1).await[0])];
    delivered[0].response = Some("answer".to_owned());
    let settled = db.store.settle_delivered(&db.outbox, &relay, &delivered, OnSuccess::Archive);
    assert_eq!(settled.await.unwrap().rows, 1);
}
