//! One row never stops the others, whatever its columns contain. Each value is written twice: with
//! the columns that the printed GRANTs allow an application to write, and with all of them.

use std::collections::HashSet;
use std::time::Duration;

use postrider_relay::{OutboxConfig, RelayConfig};
use postrider_store::{ClaimMode, DeadLetter, OutboxSpec, Page, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_store,
    relay::{RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    a_time_that_cannot_be_read_stops_no_other_row,
    a_counter_at_its_limit_stops_no_other_row,
    a_forged_state_is_set_back,
    a_text_that_cannot_be_read_is_a_dead_letter,
    rows_from_before_the_guard_are_corrected_by_a_migration,
    arbitrary_values_of_an_application_stop_no_other_row,
    arbitrary_values_of_the_owner_stop_no_other_row,
);

/// Columns that an application may write.
const APPLICATION: [&str; 11] = [
    "event_id",
    "request_id",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "payload",
    "headers",
    "content_hash",
    "max_retries",
    "next_retry_at",
    "expires_at",
];
/// Columns that belong to the relay or the database.
const OTHERS: [&str; 13] = [
    "id",
    "status",
    "retry_count",
    "redrive_count",
    "crash_count",
    "locked_by",
    "locked_at",
    "version",
    "last_error",
    "dead_reason",
    "response",
    "created_at",
    "updated_at",
];
const COUNTERS: [&str; 5] =
    ["retry_count", "redrive_count", "crash_count", "max_retries", "version"];

/// Returns values that may break the driver, arithmetic, text or states.
fn values(kind: StoreKind, column: &str) -> Vec<String> {
    let times = match kind {
        StoreKind::Postgres => vec![
            "'infinity'",
            "'-infinity'",
            "'294276-12-31 23:59:59'",
            "'4713-01-01 BC'",
            "'0001-01-01 00:00:00+00'",
        ],
        StoreKind::Mysql => vec!["'0000-00-00'", "'2024-00-10'", "'2024-01-00'", "'0001-01-01'"],
        StoreKind::Sqlite => vec![
            "'2024-02-31T24:00:00.000Z'",
            "'0001-01-01T00:00:00.000Z'",
            "'tomorrow'",
            "17",
            "9e99",
            "x'00'",
            "'-400-01-01T00:00:00.000Z'",
        ],
    };
    let numbers = vec![
        "0",
        "-1",
        "1000",
        "1000000",
        "2147483647",
        "-2147483648",
        "4611686018427387903",
        "9223372036854775807",
        "-9223372036854775808",
    ];
    let texts = match kind {
        StoreKind::Postgres => vec!["''", "E'\\x01\\n'", "repeat('ü', 200)", "'''\"{}%$1'"],
        StoreKind::Mysql => vec!["''", "'\\0\\n'", "REPEAT('ü', 200)", "'''\"{}%?'"],
        StoreKind::Sqlite => vec![
            "''",
            "CAST(x'ff00fe' AS TEXT)",
            "CAST(x'6100' AS TEXT)",
            "x'ff'",
            "1.5",
            "'''\"{}%$1'",
        ],
    };
    let own: Vec<&str> = match column {
        "next_retry_at" | "expires_at" | "locked_at" | "created_at" | "updated_at" => times.clone(),
        "status" => vec!["'PENDING'", "'PROCESSING'", "'FAILED'", "'DEAD_LETTER'", "'COMPLETED'"],
        "dead_reason" => vec!["'exhausted'", "'banana'", "''"],
        "headers" => vec!["'{}'", "'{\"a\":[null,{\"b\":1e3}],\"\":\"\"}'", "'[]'", "'{\"'"],
        "event_id" => vec![
            "'00000000-0000-0000-0000-000000000000'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "'-----------------------------------!'",
        ],
        "id" => numbers.clone(),
        _ if COUNTERS.contains(&column) => numbers.clone(),
        _ => texts.clone(),
    };
    let any = times.into_iter().chain(numbers).chain(texts).chain(["NULL"]);
    // Values of the column's own kind weigh as much as all others together.
    let own: Vec<_> = own.into_iter().map(str::to_owned).collect();
    let any: Vec<_> = any.map(str::to_owned).collect();
    let repeats = any.len() / own.len().max(1) + 1;
    own.iter().cycle().take(own.len() * repeats).chain(&any).cloned().collect()
}

/// Random numbers from a seed, which a failure prints.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let given = std::env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0) + 1);
        println!("to repeat this run: POSTRIDER_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Builds an INSERT with these values and the required columns.
fn insert(number: usize, set: &[(&str, String)]) -> String {
    let required = [
        ("aggregate_type", "'hostile'".to_owned()),
        ("aggregate_id", format!("'{number}'")),
        ("event_type", "'Hostile'".to_owned()),
        ("payload", "'{}'".to_owned()),
    ];
    let missing =
        required.into_iter().filter(|(name, _)| set.iter().all(|(other, _)| other != name));
    let all: Vec<_> = set.iter().cloned().chain(missing).collect();
    let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
    let values: Vec<_> = all.iter().map(|(_, value)| value.as_str()).collect();
    // On PostgreSQL, the identity can be written only with this override.
    let overriding = names.contains(&"id");
    format!(
        "INSERT INTO orders_outbox ({}) {}VALUES ({})",
        names.join(", "),
        if overriding { "{overriding}" } else { "" },
        values.join(", ")
    )
}

async fn try_insert(db: &TestDb, number: usize, set: &[(&str, String)]) -> bool {
    let overriding = match db.store.kind() {
        StoreKind::Postgres => "OVERRIDING SYSTEM VALUE ",
        _ => "",
    };
    let sql = insert(number, set).replace("{overriding}", overriding);
    db.try_execute(&sql).await.is_ok_and(|rows| rows == 1)
}

/// Delivers everything in one claim mode, and returns what is left for operators.
async fn deliver(db: &TestDb, claim: ClaimMode, healthy: &HashSet<i64>) -> Vec<DeadLetter> {
    db.store.set_mode(&db.outbox, claim, "olga").await.unwrap();
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let config = RelayConfig { stalled_after: Duration::from_millis(500), ..quick_config(&folder) };
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone());
    let relay = RunningRelay::on(&db.store, config, outbox);
    let all = |log: &postrider_testkit::relay::Log| {
        let delivered: HashSet<i64> = log.delivered().into_iter().collect();
        healthy.is_subset(&delivered)
    };
    sink.until("the healthy rows are delivered", all).await;
    let left = "SELECT count(*) FROM orders_outbox";
    let none_left = async || (db.integer(left).await == 0).then_some(());
    let ended = eventually("no row is left", none_left);
    let ended = tokio::time::timeout(Duration::from_secs(60), ended);
    if ended.await.is_err() {
        let rows = db.store.events(&db.outbox, &Default::default(), Page::first(5)).await;
        panic!("these are neither delivered nor dead: {rows:#?}");
    }
    relay.stop().await;
    operators_get_by(db).await
}

/// Checks that the operators' views do not fail, and that every dead letter can be resolved.
async fn operators_get_by(db: &TestDb) -> Vec<DeadLetter> {
    let (store, outbox) = (&db.store, &db.outbox);
    let page = Page::first(500);
    store.events(outbox, &Default::default(), page).await.unwrap();
    let letters = store.dead_letters(outbox, &Default::default(), page).await.unwrap().rows;
    store.dead_letter_groups(outbox, &Default::default(), page).await.unwrap();
    store.statistics(outbox).await.unwrap();
    store.composition(outbox, 1_000).await.unwrap();
    store.failed_rows(outbox, 1_000).await.unwrap();
    store.blocked_keys(outbox, 100, 1_000).await.unwrap();
    db.assert_balanced().await;
    for letter in letters.iter().filter(|letter| !letter.resolved) {
        store.dead_letter(outbox, letter.id).await.unwrap().expect("it is listed");
        store.attempts(outbox, &letter.event_id).await.unwrap();
        store.resolve(outbox, letter.id, "olga", "seen").await.unwrap();
    }
    letters
}

/// Writes single values, each in a row of its own among healthy ones, and delivers in both modes.
async fn write_and_deliver(db: &TestDb, columns: &[&str], only: &[&str]) {
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        let mut healthy: HashSet<i64> = db.append_orders(20).await.into_iter().collect();
        let mut number = 0;
        for column in columns {
            for value in only {
                number += 1;
                try_insert(db, number, &[(column, (*value).to_owned())]).await;
            }
        }
        healthy.extend(db.append_orders(20).await);
        deliver(db, claim, &healthy).await;
    }
}

async fn a_time_that_cannot_be_read_stops_no_other_row(db: TestDb) {
    let times = values(db.store.kind(), "expires_at");
    let times: HashSet<&str> = times.iter().map(String::as_str).collect();
    // 'infinity' may be refused or read; a row that waits forever would not be settled here.
    let times: Vec<&str> = times.into_iter().collect();
    write_and_deliver(&db, &["expires_at", "next_retry_at", "created_at", "updated_at"], &times)
        .await;
}

async fn a_counter_at_its_limit_stops_no_other_row(db: TestDb) {
    let limits = ["2147483647", "-2147483648", "9223372036854775807", "-9223372036854775808"];
    write_and_deliver(&db, &COUNTERS, &limits).await;
    // With an update, the owner can go as far as the table allows.
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        let healthy: HashSet<i64> = db.append_orders(30).await.into_iter().collect();
        for (column, id) in COUNTERS.iter().zip(&healthy) {
            for value in limits.iter().chain(&["1000000", "4611686018427387903"]) {
                let update = format!("UPDATE orders_outbox SET {column} = {value} WHERE id = {id}");
                drop(db.try_execute(&update).await);
            }
        }
        let all = db.integer("SELECT count(*) FROM orders_outbox WHERE crash_count < 5").await;
        let healthy = if all == 30 { healthy } else { HashSet::new() };
        deliver(&db, claim, &healthy).await;
    }
}

/// A row that claims to be held, dead or tried is treated as new: only the relay may set these
/// states.
async fn a_forged_state_is_set_back(db: TestDb) {
    let at = db.time("2026-01-01 00:00:00");
    let forged: [&[(&str, String)]; 4] = [
        &[("status", "'DEAD_LETTER'".to_owned()), ("dead_reason", "'banana'".to_owned())],
        &[
            ("status", "'PROCESSING'".to_owned()),
            ("locked_by", "'nobody'".to_owned()),
            ("locked_at", at.clone()),
        ],
        &[("status", "'FAILED'".to_owned()), ("last_error", "'no'".to_owned())],
        &[("crash_count", "9".to_owned()), ("version", "77".to_owned())],
    ];
    for (number, set) in forged.into_iter().enumerate() {
        assert!(try_insert(&db, number, set).await, "{set:?}");
    }
    let as_new = "SELECT count(*) FROM orders_outbox WHERE status = 'PENDING' AND version = 0 \
                  AND crash_count = 0 AND locked_by IS NULL AND last_error IS NULL \
                  AND dead_reason IS NULL";
    assert_eq!(db.integer(as_new).await, 4);
    let letters = deliver(&db, ClaimMode::Rows, &HashSet::new()).await;
    assert!(letters.is_empty(), "they are delivered like any other: {letters:?}");
}

/// If the database accepts bytes that are not text, they are not delivered as something else.
async fn a_text_that_cannot_be_read_is_a_dead_letter(db: TestDb) {
    if db.store.kind() != StoreKind::Sqlite {
        let refused = match db.store.kind() {
            StoreKind::Postgres => "convert_from('\\xff'::bytea, 'UTF8')",
            _ => "CAST(x'ff' AS CHAR CHARACTER SET utf8mb4)",
        };
        let set = [("payload", refused.to_owned())];
        let written = try_insert(&db, 1, &set).await;
        let bytes = "SELECT count(*) FROM orders_outbox WHERE payload <> '?'";
        assert!(!written || db.integer(bytes).await == 0, "the server keeps text");
        return;
    }
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        let healthy: HashSet<i64> = db.append_orders(5).await.into_iter().collect();
        for column in ["payload", "aggregate_id", "event_type", "request_id"] {
            let set = [(column, "CAST(x'61ff62' AS TEXT)".to_owned())];
            // The second time, the request id is a duplicate.
            let repeat = column == "request_id" && claim == ClaimMode::Lanes;
            assert_eq!(try_insert(&db, 1, &set).await, !repeat, "{column}");
        }
        let letters = deliver(&db, claim, &healthy).await;
        let open: Vec<_> = letters.iter().filter(|letter| !letter.resolved).collect();
        assert_eq!(open.len(), 4 - usize::from(claim == ClaimMode::Lanes), "{open:?}");
        let said =
            open.iter().all(|letter| letter.error_message.contains("is not UTF-8 at byte 1"));
        assert!(said, "{open:?}");
        let kept = "SELECT count(*) FROM orders_outbox_dlq WHERE hex(payload) = '61FF62'";
        assert!(db.integer(kept).await > 0, "as it was");
    }
}

/// A table without checks accepted any value; the migration that adds the checks leaves rows that
/// can be processed.
async fn rows_from_before_the_guard_are_corrected_by_a_migration(db: TestDb) {
    db.drop_guard().await;
    let healthy: HashSet<i64> = db.append_orders(20).await.into_iter().collect();
    let mut taken = 0;
    for column in APPLICATION.iter().chain(&OTHERS).filter(|column| **column != "id") {
        let all: HashSet<String> = values(db.store.kind(), column).into_iter().collect();
        for value in all {
            taken += 1;
            try_insert(&db, taken, &[(column, value)]).await;
        }
    }
    assert!(db.count("").await > 40, "some were taken");
    db.store.migrate(&[OutboxSpec::new(db.outbox.clone())]).await.unwrap();
    // Rows marked dead by hand wait for maintenance; rows due in the year 9999 would never be
    // processed.
    let due = match db.store.kind() {
        StoreKind::Postgres => "next_retry_at > now() + interval '1 day'",
        StoreKind::Mysql => "next_retry_at > UTC_TIMESTAMP(6) + INTERVAL 1 DAY",
        StoreKind::Sqlite => "next_retry_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 day')",
    };
    db.execute(&format!("UPDATE orders_outbox SET next_retry_at = NULL WHERE {due}")).await;
    deliver(&db, ClaimMode::Rows, &healthy).await;
}

async fn arbitrary_values_of_an_application_stop_no_other_row(db: TestDb) {
    arbitrary_values(&db, &APPLICATION, false).await;
}

async fn arbitrary_values_of_the_owner_stop_no_other_row(db: TestDb) {
    let all: Vec<&str> = APPLICATION.iter().chain(&OTHERS).copied().collect();
    arbitrary_values(&db, &all, true).await;
}

async fn arbitrary_values(db: &TestDb, columns: &[&str], updates: bool) {
    let (mut random, kind) = (Random::new(), db.store.kind());
    for claim in [ClaimMode::Rows, ClaimMode::Lanes] {
        let (mut healthy, mut taken) = (HashSet::new(), 0);
        for number in 0..120 {
            if number % 10 == 0 {
                healthy.extend(db.append_orders(5).await);
            }
            let set: Vec<(&str, String)> = (0..=random.below(3))
                .map(|_| *random.pick(columns))
                .collect::<HashSet<_>>()
                .into_iter()
                .map(|column| (column, random.pick(&values(kind, column)).clone()))
                .collect();
            taken += usize::from(try_insert(db, number, &set).await);
        }
        assert!(taken > 10, "{taken} rows were taken");
        if updates {
            update(db, &mut random).await;
        }
        deliver(db, claim, &healthy).await;
    }
}

/// Changes hostile rows by hand, except for id, type and time, which the ledger has counted.
async fn update(db: &TestDb, random: &mut Random) {
    let counted = ["id", "event_type", "created_at"];
    let columns: Vec<&str> =
        APPLICATION.iter().chain(&OTHERS).copied().filter(|c| !counted.contains(c)).collect();
    for number in 0..120 {
        let column = *random.pick(&columns);
        let value = random.pick(&values(db.store.kind(), column)).clone();
        let update = format!(
            "UPDATE orders_outbox SET {column} = {value} \
             WHERE aggregate_type = 'hostile' AND aggregate_id = '{number}'"
        );
        drop(db.try_execute(&update).await);
    }
}
