//! `postrider bench`, with sizes that take moments: what it prints, and that it leaves nothing
//! behind.

use std::process::Stdio;

use postrider_store::StoreKind;
use postrider_testkit::{
    Installation, PATIENCE, TestDb, TestServer, conformance::steps::order, eventually,
};
use serde_json::Value;

use crate::scene::{BINARY, Place};

crate::on_stores!(postgres, mariadb, sqlite: {
    a_drain_is_measured_against_its_limit,
    latency_is_measured_from_the_commit_and_from_the_schedule,
    appends_are_measured_against_plain_inserts,
    an_inbox_is_measured_against_the_effects_alone,
    ready_events_are_measured_past_blocked_keys,
    destinations_are_measured_beside_one_that_is_down,
    a_transaction_is_held_while_a_rate_is_kept,
    relays_share_the_work_without_duplicates,
    an_outage_is_timed_between_the_commands_that_make_it,
    a_relay_is_killed_and_its_lanes_are_served_again,
    a_claim_is_timed_with_few_and_with_many_waiting,
    transactions_are_timed_alone_and_beside_relays,
    answers_of_the_api_are_timed_by_kind,
    dead_letters_are_sent_again_at_a_rate_through_the_end_of_a_runner,
    an_outbox_or_table_that_exists_is_refused_and_untouched,
    a_bench_that_is_interrupted_drops_its_tables,
});
mod on_one_store {
    crate::scene::tests!(sqlite { pages_are_timed_in_a_browser });
}

/// A database without tables, and the binary.
struct Bench {
    db: TestDb,
    site: Installation,
}

impl Bench {
    async fn open(place: Place) -> Option<Self> {
        let db = TestDb::open_empty(place.server, place.test).await?;
        Some(Self { db, site: Installation::new(BINARY, "") })
    }

    /// Runs a bench to its end; checks what all of them have in common.
    async fn run(&self, args: &[&str]) -> Value {
        let page = self.site.path("report.html").display().to_string();
        let common = ["--store", &self.db.url, "--log", "warn", "bench"];
        let output = ["--json", "--report", &page];
        let ran = self.site.run(&[&common[..], args, &output[..]].concat()).await.exits(0);
        let found = ran.json();
        assert_eq!(found["bench"], args[0]);
        for key in ["events_per_s", "limit_events_per_s", "ratio"] {
            let value = found[key].as_f64().unwrap_or_default();
            assert!(value > 0.0, "{key} of {found:#}");
        }
        for key in ["postrider", "command", "measured_at", "store", "server", "build"] {
            assert!(found[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {found:#}");
        }
        assert!(found["machine"]["cores"].as_u64() > Some(0) && found["durability"].is_object());
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("<svg") && page.contains(args[0]), "{page}");
        for reach in ["src=", "href=", "url(", "@import"] {
            assert!(!page.contains(reach), "a report needs no network: {reach}");
        }
        self.nothing_is_left().await;
        found
    }

    async fn tables(&self) -> i64 {
        let (list, name) = match self.db.store.kind() {
            StoreKind::Sqlite => ("sqlite_master WHERE", "name"),
            StoreKind::Postgres => ("pg_tables WHERE", "tablename"),
            StoreKind::Mysql => {
                ("information_schema.tables WHERE table_schema = database() AND", "table_name")
            }
        };
        self.db.integer(&format!("SELECT count(*) FROM {list} {name} LIKE 'bench%'")).await
    }

    async fn nothing_is_left(&self) {
        assert_eq!(self.tables().await, 0, "tables are left");
        assert_eq!(self.db.integer("SELECT count(*) FROM postrider_outboxes").await, 0);
        assert_eq!(self.db.integer("SELECT count(*) FROM postrider_relays").await, 0);
    }
}

fn sound(found: &Value) {
    assert_eq!(found["duplicates"], 0, "{found:#}");
    assert_eq!(found["balanced"], true, "{found:#}");
    assert!(found["order_violations"].is_u64(), "{found:#}");
    let memory = ["rss_max_mb", "rss_idle_mb"].map(|key| found[key].as_f64().unwrap());
    assert!(memory.iter().all(|mb| (1.0..1_000.0).contains(mb)), "{memory:?}");
}

async fn a_drain_is_measured_against_its_limit(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    for claim in ["rows", "lanes"] {
        let size = ["--events", "3000", "--batch", "500", "--relays", "2"];
        let found = bench.run(&[&["drain", "--claim", claim][..], &size[..]].concat()).await;
        sound(&found);
        assert_eq!((&found["events"], &found["payload_bytes"]), (&3_000.into(), &256.into()));
        assert_eq!((&found["relays"], &found["claim"]), (&2.into(), &claim.into()));
        assert_eq!(found["store_limit_events_per_s"], found["limit_events_per_s"]);
    }

    let found = bench.run(&["drain", "--events", "300", "--sink", "http"]).await;
    sound(&found);
    let limits = ["store_limit_events_per_s", "sink_limit_events_per_s", "limit_events_per_s"];
    let [store, sink, limit] = limits.map(|key| found[key].as_f64().unwrap());
    assert_eq!(limit, store.min(sink), "{found:#}");
}

async fn latency_is_measured_from_the_commit_and_from_the_schedule(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let args = ["latency", "--rate", "200", "--seconds", "1", "--warm-up", "1", "--writers", "2"];
    let found = bench.run(&args).await;
    sound(&found);
    let ascending = |found: &Value| {
        let times =
            ["p50_ms", "p95_ms", "p99_ms", "max_ms"].map(|key| found[key].as_f64().unwrap());
        assert!(times.is_sorted() && times[3] > 0.0, "{times:?}");
        times
    };
    let (commit, due) = (ascending(&found), ascending(&found["from_due"]));
    ascending(&found["limit"]);
    assert!(due[3] >= commit[3], "an event is due before it is committed: {found:#}");
    assert_eq!((&found["events"], &found["limit_events_per_s"]), (&400.into(), &200.0.into()));
    assert_eq!(found["warm_up_s"], 1);
}

async fn appends_are_measured_against_plain_inserts(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let found = bench.run(&["append", "--events", "50", "--batch", "100", "--writers", "3"]).await;
    assert_eq!(found["balanced"], true);
    let cases = found["cases"].as_array().unwrap();
    let facts: Vec<_> = cases
        .iter()
        .map(|case| (case["events"].as_u64(), case["per_append"].as_u64(), &case["request_id"]))
        .collect();
    let (no, yes) = (&Value::Bool(false), &Value::Bool(true));
    let one_by_one = [(Some(50), Some(1), no), (Some(50), Some(1), yes)];
    let batched = [(Some(500), Some(100), no), (Some(500), Some(100), yes)];
    assert_eq!(facts, [one_by_one, batched].concat());
    assert!(cases.iter().all(|case| case["ratio"].as_f64() > Some(0.0)), "{found:#}");
}

async fn an_inbox_is_measured_against_the_effects_alone(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let found = bench.run(&["inbox", "--events", "300", "--batch", "50", "--consumers", "3"]).await;
    assert_eq!(found["balanced"], true);
    let counts = ["received", "applied", "ignored"].map(|key| found[key].as_u64().unwrap());
    assert_eq!(counts, [600, 300, 300]);
    assert!(found["ratio"].as_f64() > Some(0.0), "{found:#}");
}

async fn ready_events_are_measured_past_blocked_keys(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    for claim in ["rows", "lanes"] {
        let size = ["--blocked", "400", "--ready", "300", "--rounds", "2"];
        let found = bench.run(&[&["blocked-keys", "--claim", claim][..], &size[..]].concat()).await;
        sound(&found);
        let numbers = ["events", "blocked", "failing_keys"].map(|key| found[key].as_u64().unwrap());
        assert_eq!(numbers, [300, 400, 2]);
        for (figure, rounds) in [
            ("events_per_s", "rounds_events_per_s"),
            ("limit_events_per_s", "rounds_limit_events_per_s"),
        ] {
            let rates = found[rounds].as_array().unwrap().iter().filter_map(|rate| rate.as_f64());
            assert_eq!(rates.clone().count(), 2);
            assert_eq!(found[figure].as_f64(), Some(rates.fold(0.0, f64::max)), "{found:#}");
        }
    }
}

async fn destinations_are_measured_beside_one_that_is_down(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    for claim in ["rows", "lanes"] {
        let size = ["--destinations", "4", "--events", "300"];
        let found = bench.run(&[&["destinations", "--claim", claim][..], &size[..]].concat()).await;
        sound(&found);
        let numbers =
            ["events", "held_back", "destinations", "down"].map(|key| found[key].as_u64().unwrap());
        assert_eq!(numbers, [300, 100, 4, 1]);
    }
}

async fn a_transaction_is_held_while_a_rate_is_kept(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let found = bench.run(&["held-xmin", "--rate", "300", "--seconds", "1"]).await;
    sound(&found);
    for run in ["claim_ms", "clean_claim_ms"] {
        let fifths = ["first_fifth", "last_fifth", "growth"].map(|key| found[run][key].as_f64());
        assert!(fifths.iter().all(|ms| *ms > Some(0.0)), "{found:#}");
    }
}

async fn relays_share_the_work_without_duplicates(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let size = [
        ["--relays", "1,3"],
        ["--rounds", "2"],
        ["--events", "2000"],
        ["--batch", "100"],
        ["--keys", "50"],
    ]
    .concat();
    let rows = bench.run(&[&["scale", "--claim", "rows"][..], &size[..]].concat()).await;
    sound(&rows);
    let found = bench.run(&[&["scale", "--claim", "lanes"][..], &size[..]].concat()).await;
    sound(&found);
    assert_eq!(found["order_violations"], 0, "lanes keep the order of each key: {found:#}");
    let relays: Vec<_> = found["cases"].as_array().unwrap().iter().map(|c| &c["relays"]).collect();
    assert_eq!(relays, [1, 3]);
    assert_eq!(found["cases"][0]["ratio"], 1.0);
    assert_eq!(found["ratio"], found["cases"][1]["ratio"], "the further case is the figure");
    for case in found["cases"].as_array().unwrap() {
        let rounds = case["rounds_events_per_s"].as_array().unwrap();
        assert_eq!(rounds.len(), 2);
        let fastest = rounds.iter().filter_map(|rate| rate.as_f64()).fold(0.0, f64::max);
        assert_eq!(case["events_per_s"].as_f64(), Some(fastest), "{case:#}");
    }
}

async fn a_claim_is_timed_with_few_and_with_many_waiting(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    for (claim, few, many) in [("rows", 200, 900), ("lanes", 5_000, 7_000)] {
        let sizes = format!("{few},{many}");
        let args = ["backlog", "--claim", claim, "--batch", "10", "--sizes", &sizes];
        let found = bench.run(&args).await;
        let cases = found["cases"].as_array().unwrap();
        let waiting: Vec<_> = cases
            .iter()
            .map(|case| ["waiting", "not_yet_due"].map(|key| case[key].as_u64().unwrap()))
            .collect();
        assert_eq!(waiting, [[few, 0], [many, 0], [few + many, many]]);
        assert!(cases.iter().all(|case| case["median_ms"].as_f64() > Some(0.0)), "{found:#}");
        assert!(cases.iter().all(|case| case["claims"].as_u64() > Some(1)), "{found:#}");
    }
    let small = ["--store", &bench.db.url, "bench", "backlog", "--sizes", "100", "--batch", "100"];
    let _ = bench.site.run(&small).await.exits(2).says(&["--sizes 100", "larger"]);
    bench.nothing_is_left().await;
}

async fn transactions_are_timed_alone_and_beside_relays(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    for claim in ["rows", "lanes"] {
        let size = ["--events", "20000", "--batch", "10", "--rate", "2000", "--seconds", "1"];
        // However slow the machine is that the tests run on.
        let some = ["--transactions-min", "1"];
        let args = [&["producers", "--claim", claim][..], &size, &some].concat();
        let found = bench.run(&args).await;
        assert_eq!(found["balanced"], true, "{found:#}");
        assert!(found["delivered_per_s"].as_f64() > Some(0.0), "{found:#}");
        for run in ["alone", "beside_relays", "beside_barest"] {
            let [p50, p99] = ["p50_ms", "p99_ms"].map(|key| found[run][key].as_f64().unwrap());
            assert!(0.0 < p50 && p50 <= p99, "{run}: {found:#}");
        }
    }
}

async fn answers_of_the_api_are_timed_by_kind(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let archived = ["--archived", "100"];
    let sizes = ["--events", "300", "--dead-letters", "50", "--requests", "3"];
    let common = ["--store", &bench.db.url, "--log", "warn", "bench", "api", "--json"];
    // However slow the machine is that the tests run on.
    let easy = [&common[..], &archived, &sizes, &["--clients", "2", "--target", "1h"]].concat();
    let found = bench.site.run(&easy).await.exits(0).json();
    assert_eq!((&found["bench"], &found["events"]), (&"api".into(), &300.into()));
    let kinds = found["kinds"].as_array().unwrap();
    for change in ["append", "retry", "resolve"] {
        assert!(kinds.iter().any(|kind| kind["kind"] == change), "{change}: {found:#}");
    }
    for kind in kinds {
        assert!(kind["p50_ms"].as_f64() > Some(0.0), "{kind}");
        assert!(kind["p99_ms"].as_f64() >= kind["p50_ms"].as_f64(), "{kind}");
    }
    assert!(found["ratio"].as_f64() > Some(0.0) && found["within_target"] == true);
    let hard = [&common[..], &archived, &sizes, &["--target", "1us"]].concat();
    let missed = bench.site.run(&hard).await.exits(1).says(&["p99 above", "statistics"]);
    assert_eq!(missed.json()["within_target"], false);
    bench.nothing_is_left().await;
}

async fn pages_are_timed_in_a_browser(place: Place) {
    let Ok(driver) = std::env::var("CHROMEDRIVER") else {
        let reason = "CHROMEDRIVER is not set; dev/test provides it";
        return postrider_testkit::skip(place.test, reason);
    };
    let Some(bench) = Bench::open(place).await else { return };
    let sizes = ["--events", "300", "--dead-letters", "50", "--loads", "2", "--target", "1h"];
    let common = ["--store", &bench.db.url, "--log", "warn", "bench", "page", "--json"];
    let args = [&common[..], &sizes[..], &["--chromedriver", &driver]].concat();
    let found = bench.site.run(&args).await.exits(0).json();
    assert_eq!((&found["bench"], &found["within_target"]), (&"page".into(), &true.into()));
    let pages = found["pages"].as_array().unwrap();
    assert!(pages.len() > 7, "{found:#}");
    for page in pages {
        let (paint, whole) = (&page["first_paint"]["max_ms"], &page["whole"]["max_ms"]);
        assert!(paint.as_f64() > Some(0.0) && paint.as_f64() <= whole.as_f64(), "{page}");
    }
    let nowhere = [&common[..], &["--events", "1", "--chromedriver", "/no/such/driver"]].concat();
    let _ = bench.site.run(&nowhere).await.exits(2).says(&["/no/such/driver", "chromium-driver"]);
    bench.nothing_is_left().await;
}

async fn dead_letters_are_sent_again_at_a_rate_through_the_end_of_a_runner(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let found = bench.run(&["bulk-retry", "--letters", "600", "--rate", "400"]).await;
    assert_eq!((&found["lost"], &found["doubled"]), (&0.into(), &0.into()), "{found:#}");
    assert_eq!((&found["rate_kept"], &found["balanced"]), (&true.into(), &true.into()));
    assert_eq!(found["left_alone"], 600, "what does not fit the filter: {found:#}");
    let interrupted = found["interrupted_at"].as_i64().unwrap();
    assert!((300..600).contains(&interrupted), "half-way: {interrupted}");
}

async fn an_outbox_or_table_that_exists_is_refused_and_untouched(place: Place) {
    let Some(db) = TestDb::open(place.server, place.test).await else { return };
    let site = Installation::new(BINARY, "");
    let mut tx = db.begin().await;
    let _ = tx.append(&db.outbox, &order(1)).await.unwrap();
    tx.commit().await.unwrap();
    db.execute("CREATE TABLE business_outbox (number INTEGER)").await;
    for name in ["orders", "business"] {
        let args = ["--store", &db.url, "bench", "drain", "--events", "10", "--outbox", name];
        let _ = site.run(&args).await.exits(2).says(&["--outbox", name, "exists"]);
    }
    assert_eq!(db.count("").await, 1, "the event is where it was");
    assert_eq!(db.integer("SELECT count(*) FROM business_outbox").await, 0, "and so is the table");
    assert_eq!(db.integer("SELECT count(*) FROM postrider_outboxes").await, 1);
}

async fn an_outage_is_timed_between_the_commands_that_make_it(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let mark = |name: &str| bench.site.path(name).display().to_string();
    let (stop, start) = (format!("touch '{}'", mark("away")), format!("rm '{}'", mark("away")));
    let load = ["--rate", "200", "--away", "1s", "--around", "1"];
    let commands = ["outage", "--stop", &stop, "--start", &start];
    let found = bench.run(&[&commands[..], &load[..]].concat()).await;
    sound(&found);
    assert_eq!((&found["lost"], &found["events"]), (&0.into(), &600.into()));
    assert!(found["away_s"].as_f64().unwrap() >= 1.0, "{found:#}");
    assert!(found["resumed_after_s"].as_f64().unwrap() < 60.0, "{found:#}");
    assert!(!bench.site.path("away").exists(), "both commands were run");

    let args = ["--store", &bench.db.url, "bench", "outage", "--stop", "false", "--start", "true"];
    let ran = bench.site.run(&[&args[..], &load[..]].concat()).await;
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("--stop `false`"), "{}", ran.stderr);
    bench.nothing_is_left().await;
}

async fn a_relay_is_killed_and_its_lanes_are_served_again(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let args = ["--store", &bench.db.url, "--log", "warn", "bench", "takeover", "--json"];
    let ran = bench.site.run(&[&args[..], &["--rounds", "1"]].concat()).await;
    if !bench.db.store.capabilities().shares_lanes {
        let ran = ran.exits(2);
        assert!(ran.stderr.contains("one relay owns all lanes"), "{}", ran.stderr);
        return;
    }
    let found = ran.exits(0).json();
    let served = found["served_again_s"][0].as_f64().unwrap();
    assert!(served > found["undisturbed_s"].as_f64().unwrap(), "no relay was killed: {found:#}");
    assert_eq!((&found["balanced"], &found["relays"]), (&true.into(), &2.into()));
    assert!(found["ratio"].as_f64().unwrap() > 0.0, "{found:#}");
    // The one that was killed stays on the list of relays until another one removes it.
    assert_eq!(bench.tables().await, 0);
}

/// A relay holds events, writers are in the middle of their transactions: all of them end first.
async fn a_bench_that_is_interrupted_drops_its_tables(place: Place) {
    let Some(bench) = Bench::open(place).await else { return };
    let args = ["--store", &bench.db.url, "bench", "latency", "--rate", "500", "--seconds", "900"];
    let mut child = tokio::process::Command::new(BINARY)
        .args(args)
        .args(["--outbox", "bench_cut_off", "--keys", "7"])
        .current_dir(bench.site.folder())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    bench.db.store.migrate(&[]).await.unwrap();
    eventually("events flow", async || {
        let outboxes = bench.db.integer("SELECT count(*) FROM postrider_outboxes").await;
        if outboxes == 0 {
            return None;
        }
        let outbox = postrider::Outbox::new("bench_cut_off").unwrap();
        let numbers = bench.db.store.statistics(&outbox).await.ok()?;
        (numbers.delivered > 50).then_some(())
    })
    .await;
    let pid = child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill").args(["-INT", &pid]).status().await.unwrap();
    assert!(sent.success());
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(130));
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn kafka_is_fed_through_a_topic_that_is_gone_afterwards() {
    let test = "bench::kafka_is_fed_through_a_topic_that_is_gone_afterwards";
    let Ok(brokers) = std::env::var("KAFKA_BROKERS") else {
        return postrider_testkit::skip(test, "the variable KAFKA_BROKERS is not set");
    };
    let place = Place::new(TestServer::Sqlite, test);
    let Some(bench) = Bench::open(place).await else { return };
    let kafka = ["--sink", "kafka", "--brokers", &brokers, "--claim", "lanes"];
    let found = bench.run(&[&["drain", "--events", "2000"][..], &kafka[..]].concat()).await;
    sound(&found);
    assert_eq!((&found["acks"], &found["order_violations"]), (&"all".into(), &0.into()));
    assert!(found["broker"].as_str().unwrap().starts_with("Kafka 4."), "{found:#}");
    assert!(found["sink_limit_events_per_s"].as_f64() > Some(0.0), "{found:#}");

    let absent = ["--topic", "postrider-bench-no-such-topic"];
    let common = ["--store", &bench.db.url, "bench", "drain", "--events", "10"];
    let ran = bench.site.run(&[&common[..], &kafka[..], &absent[..]].concat()).await;
    let _ = ran.exits(1).says(&["no-such-topic", "does not exist"]);
}

#[tokio::test]
async fn what_cannot_be_measured_is_refused_at_once() {
    let site = Installation::new(BINARY, "");
    for (args, words) in [
        (&["drain", "--claim", "pigeon"][..], &["--claim", "pigeon", "rows"][..]),
        (&["drain", "--sink", "pigeon"], &["pigeon", "null, http, kafka"]),
        (&["drain", "--events", "0"], &["--events"]),
        (&["drain", "--outbox", "no such name"], &["no such name"]),
        (&["drain", "--report", "no/such/folder/r.html"], &["--report", "no/such/folder"]),
        (&["latency", "--rate", "1000000", "--seconds", "86400"], &["--rate", "at most"]),
        (&["scale", "--relays", "1,none"], &["--relays", "none"]),
    ] {
        let args = [&["--store", "sqlite:bench.db", "bench"][..], args].concat();
        let _ = site.run(&args).await.exits(2).says(words);
    }
}
