//! Exported dead letters can be imported again, whatever the row contains: a database accepts
//! headers that the relay's parser cannot follow, and texts with any characters.

use postrider_relay::delivery::backup::{self, Record};
use postrider_store::{
    DeadLetter, DeadReason, DlqFilter, Event, ImportEntry, Imported, Lease, OnSuccess, Page,
    StoreKind,
};
use postrider_testkit::{TestDb, TestServer, conformance::steps::death, on_each_store};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

on_each_store!(
    an_export_of_odd_rows_is_imported_again,
    an_import_of_what_this_store_cannot_hold_is_refused,
    fuzz_exports,
);

/// Number of rows whose dead letters are exported together.
const TOGETHER: usize = 32;

/// A row that an application wrote.
#[derive(Debug, Clone)]
struct Row {
    aggregate_id: String,
    payload: String,
    headers: String,
}

fn row(headers: impl Into<String>) -> Row {
    Row { aggregate_id: "o-1".to_owned(), payload: "{}".to_owned(), headers: headers.into() }
}

/// Returns a text as a SQL literal, whatever its characters.
fn literal(kind: StoreKind, text: &str) -> String {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    match kind {
        StoreKind::Postgres => format!("convert_from('\\x{hex}', 'UTF8')"),
        StoreKind::Mysql => format!("CONVERT(x'{hex}' USING utf8mb4)"),
        StoreKind::Sqlite => format!("CAST(x'{hex}' AS TEXT)"),
    }
}

/// Inserts a row. Returns whether the database accepts it.
async fn insert(db: &TestDb, row: &Row) -> bool {
    let kind = db.store.kind();
    let text = |text: &str| literal(kind, text);
    let cast = if kind == StoreKind::Postgres { "::jsonb" } else { "" };
    let sql = format!(
        "INSERT INTO {} (aggregate_type, aggregate_id, event_type, payload, headers) \
         VALUES ('order', {}, 'OrderPlaced', {}, {}{cast})",
        db.outbox.table(),
        text(&row.aggregate_id),
        text(&row.payload),
        text(&row.headers)
    );
    db.try_execute(&sql).await.is_ok()
}

async fn letters(db: &TestDb) -> Vec<DeadLetter> {
    let page = Page::first(1_000).within(std::time::Duration::MAX);
    let found = db.store.dead_letters(&db.outbox, &DlqFilter::default(), page).await.unwrap();
    let mut letters = Vec::new();
    for found in found.rows.iter().rev() {
        letters.push(db.store.dead_letter(&db.outbox, found.id).await.unwrap().unwrap());
    }
    letters
}

fn entries(letters: &[DeadLetter]) -> Vec<ImportEntry> {
    let mut entries: Vec<_> = letters.iter().cloned().filter_map(ImportEntry::of).collect();
    entries.sort_by_key(|entry| entry.original_id);
    entries
}

/// Returns what a receiver sees of events, sorted.
fn contents(events: &[Event]) -> Vec<(String, String, String, Option<String>)> {
    let content = |event: &Event| {
        let Event { event_id, aggregate_id, payload, headers, .. } = event.clone();
        (event_id, aggregate_id, payload, headers)
    };
    let mut contents: Vec<_> = events.iter().map(content).collect();
    contents.sort();
    contents
}

/// Turns all rows into dead letters, a file, dead letters again, and events again.
async fn there_and_back(db: &TestDb, relay: &Lease) {
    let events = db.claim(relay, 1_000).await;
    let dead: Vec<_> = events.iter().map(|e| death(e, DeadReason::Integrity, "no")).collect();
    db.store.settle_dead(&db.outbox, relay, &dead).await.unwrap();
    let exported = entries(&letters(db).await);
    assert_eq!(exported.len(), events.len());
    let mut file = Vec::new();
    for entry in &exported {
        let (outbox, event) = (db.outbox.name().to_owned(), Box::new(entry.clone()));
        let record = Record::Dead { outbox, written_at: chrono::Utc::now(), event };
        backup::write(&mut file, &record).unwrap();
    }
    db.execute(&format!("DELETE FROM {}_dlq", db.outbox.table())).await;

    let read = backup::read_from(&file[..]).unwrap();
    assert_eq!(read.damaged, []);
    for (_, entry) in &read.open {
        assert!(!db.store.was_closed(&db.outbox, entry).await.unwrap());
        let imported = db.store.import(&db.outbox, entry, "ann").await;
        assert!(matches!(imported, Ok(Imported::Restored)), "{imported:?}: {entry:#?}");
    }
    let restored = letters(db).await;
    assert_eq!(entries(&restored), exported);
    for letter in restored {
        db.store.retry(&db.outbox, letter.id, "ann", "").await.unwrap();
    }
    let again = db.claim(relay, 1_000).await;
    assert_eq!(contents(&again), contents(&events));
    db.deliver(relay, &again, OnSuccess::Delete).await;
    db.execute(&format!("DELETE FROM {}_dlq", db.outbox.table())).await;
}

/// Numbers that are too large, deeply nested headers, lone surrogates, repeated names, NUL.
async fn an_export_of_odd_rows_is_imported_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let deep = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
    let odd = |payload: &str| Row { payload: payload.to_owned(), ..row("{}") };
    use TestServer::{Mariadb, Mysql, Postgres, Sqlite};
    let all = [Postgres, Mysql, Mariadb, Sqlite];
    let (lenient, sqlite, exact) = (&all[1..], &all[3..], [Postgres, Mariadb, Sqlite]);
    for (row, servers) in [
        // MySQL calculates with doubles.
        (row("{\"a\":1e999}"), &exact[..]),
        (row(format!("{{\"a\":{}}}", "9".repeat(400))), &exact[..]),
        (row(deep(20)), &all[..]),
        (row(deep(200)), &[Postgres, Sqlite][..]),
        (row("{\"a\":1,\"a\":2}"), &all[..]),
        (row(" {\"a\":1}"), &all[..]),
        (row("{\"a\":\"\\ud800\"}"), sqlite),
        (row("{\"a\":\"\\u0000\"}"), lenient),
        (row("{\"a\": nothing"), sqlite),
        (odd("not JSON, \u{1b}[2J"), &all[..]),
        (odd("\"\\ud800\""), &all[..]),
        (odd("a\0b"), lenient),
        (Row { aggregate_id: format!("a\0{}", "b".repeat(600)), ..row("{}") }, sqlite),
    ] {
        let is_taken = insert(&db, &row).await;
        assert_eq!(is_taken, servers.contains(&db.server), "{row:?}");
    }
    there_and_back(&db, &relay).await;
    db.assert_balanced().await;
}

/// A file of another store may contain what this one does not accept. The entry is refused with a
/// reason, and the next one continues.
async fn an_import_of_what_this_store_cannot_hold_is_refused(db: TestDb) {
    let relay = db.relay("relay-a").await;
    assert!(insert(&db, &row("{}")).await);
    let event = db.claim(&relay, 1).await.remove(0);
    db.move_to_dlq(&relay, &event, "no").await;
    let sound = entries(&letters(&db).await).remove(0);
    let sound = ImportEntry { original_id: sound.original_id + 1_000, ..sound };
    let refused = match db.store.kind() {
        StoreKind::Postgres => {
            vec!["{\"a\":\"\\u0000\"}", "{\"a\":\"\\ud800\"}", "{\"a\": nothing"]
        }
        StoreKind::Mysql => vec!["{\"a\": nothing", "[]"],
        StoreKind::Sqlite => vec!["[]", "\n{}"],
    };
    for headers in refused {
        let odd = ImportEntry { headers: Some(headers.to_owned()), ..sound.clone() };
        let answer = db.store.import(&db.outbox, &odd, "ann").await;
        assert!(
            matches!(answer, Err(postrider_store::StoreError::Refused(_))),
            "{headers}: {answer:?}"
        );
    }
    assert_eq!(db.store.import(&db.outbox, &sound, "ann").await.unwrap(), Imported::Restored);
}

/// Generates texts that a database may accept as headers, payload or id.
fn rows() -> impl Strategy<Value = Row> {
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        "\"a\":",
        "\"A\":",
        ",",
        ":",
        "1e999",
        "-0.0",
        "1e-999",
        "0.1",
        "null",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"\\ud83e\\udd80\"",
        "\"ü\"",
        "\"",
        "\\",
        " ",
        "\n",
        "\0",
        "\u{1b}",
        "🦀",
        "12345678901234567890",
        "\"postrider-replay\":",
    ];
    let text = || vec(select(pieces.to_vec()), 0..6).prop_map(|pieces| pieces.concat());
    let levels = (0..300_usize).prop_map(|n| format!("{}1{}", "[".repeat(n), "]".repeat(n)));
    let values = [
        "1e999",
        "1E+400",
        "-1e-999",
        "0.30000000000000004",
        "123456789012345678901",
        "true",
        "\"x\"",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"\\/\"",
        "{\"b\":{}}",
        "[[],[null]]",
    ];
    let value = prop_oneof![3 => select(values.to_vec()).prop_map(str::to_owned), 1 => levels];
    let member = ("[aA\"]|ü|postrider-replay|\\\\u0061", value);
    let members = vec(member, 0..5).prop_map(|members| {
        let members: Vec<_> = members.iter().map(|(n, v)| format!("\"{n}\": {v}")).collect();
        format!("{{{}}}", members.join(", "))
    });
    let headers = prop_oneof![3 => members, 1 => text().prop_map(|text| format!("{{{text}"))];
    (text(), text(), headers).prop_map(|(aggregate_id, payload, headers)| Row {
        aggregate_id,
        payload,
        headers,
    })
}

async fn fuzz_exports(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let mut runner = TestRunner::default();
    // Each case is a dozen statements.
    let mut left = usize::try_from(runner.config().cases / 4).unwrap();
    let mut taken = 0;
    while left > 0 {
        let together = left.min(TOGETHER);
        for _ in 0..together {
            let row = rows().new_tree(&mut runner).unwrap().current();
            taken += usize::from(insert(&db, &row).await);
        }
        there_and_back(&db, &relay).await;
        left -= together;
    }
    assert!(taken > 0, "the database refuses all of them");
    db.assert_balanced().await;
}
