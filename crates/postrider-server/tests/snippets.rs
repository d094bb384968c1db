//! The programs of `docs/sql-contract.md`, run as they stand in the page, each against a database
//! of its own. Java and Go are not run here: the page says so.
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use postrider::content_hash;
use postrider_store::OnSuccess;
use postrider_testkit::{TestDb, TestServer, skip};

const PAGE: &str = include_str!("../../../docs/sql-contract.md");
const CONSUMERS: &str = include_str!("../../../docs/consumers.md");

/// The tables of the business in the snippets. `calls` is written before the event is appended, so
/// that a lost transaction shows.
const BUSINESS: [&str; 2] = [
    "CREATE TABLE orders (id varchar(50) PRIMARY KEY, amount integer NOT NULL)",
    "CREATE TABLE calls (order_id varchar(50) NOT NULL)",
];

#[tokio::test(flavor = "multi_thread")]
async fn python_postgres() {
    run("python_postgres", TestServer::Postgres, &python("psycopg2"), "python_postgres.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_mysql() {
    run("python_mysql", TestServer::Mysql, &python("pymysql"), "python_mysql.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_mariadb() {
    run("python_mariadb", TestServer::Mariadb, &python("pymysql"), "python_mysql.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn python_sqlite() {
    run("python_sqlite", TestServer::Sqlite, &python("sqlite3"), "python_sqlite.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_postgres() {
    run("node_postgres", TestServer::Postgres, &node("pg"), "node_postgres.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_mysql() {
    run("node_mysql", TestServer::Mysql, &node("mysql2/promise"), "node_mysql.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_mariadb() {
    run("node_mariadb", TestServer::Mariadb, &node("mysql2/promise"), "node_mysql.js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_python_postgres() {
    let test = "inbox_python_postgres";
    run_inbox(test, TestServer::Postgres, &python("psycopg2")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_python_sqlite() {
    run_inbox("inbox_python_sqlite", TestServer::Sqlite, &python("sqlite3")).await;
}

#[test]
fn the_page_shows_the_files_as_they_are() {
    let mut shown = 0;
    for file in std::fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let link = format!("(snippets/{name})");
        let after_name = [PAGE, CONSUMERS].iter().find_map(|page| page.split_once(&link));
        let (_, after_name) = after_name.unwrap_or_else(|| panic!("no page links {name}"));
        let block = after_name.split("```").nth(1).unwrap_or_default();
        let block = block.split_once('\n').map_or("", |(_language, code)| code);
        assert_eq!(block, text, "the page shows another text than docs/snippets/{name}");
        shown += 1;
    }
    assert!(shown >= 9, "{shown} snippets found in docs/snippets");
}

/// The test vectors of the page are what the library computes.
#[test]
fn the_page_has_the_right_hashes() {
    let vectors = [
        (Some("transfer-9001"), "TransferCompleted", r#"{"amount":10}"#),
        (None, "OrderPlaced", ""),
        (Some("r-1"), "Größe", r#"{"größe":"5 €"}"#),
    ];
    for (request_id, event_type, payload) in vectors {
        let hash = content_hash(request_id, event_type, payload);
        let line = PAGE.lines().find(|line| line.contains(&hash));
        let line = line.unwrap_or_else(|| panic!("no line of the page has the hash {hash}"));
        for part in [request_id.unwrap_or_default(), event_type, payload] {
            assert!(line.contains(part), "`{part}` is not in: {line}");
        }
    }
}

struct Interpreter {
    program: String,
    /// A command that succeeds where the driver can be loaded.
    check: [String; 2],
    missing: String,
}

/// `PYTHON` is set by dev/test; Debian's own one has Debian's drivers.
fn python(module: &str) -> Interpreter {
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned());
    let missing = format!("{program} cannot import {module}");
    Interpreter { program, check: ["-c".to_owned(), format!("import {module}")], missing }
}

/// The driver is found through `NODE_PATH`, which dev/test sets.
fn node(package: &str) -> Interpreter {
    Interpreter {
        program: "node".to_owned(),
        check: ["-e".to_owned(), format!("require('{package}')")],
        missing: format!("node cannot load the package {package} (NODE_PATH)"),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/snippets")
}

impl Interpreter {
    /// Whether it can run the snippet; noted as skipped otherwise.
    fn loads(&self, test: &str) -> bool {
        let loads = Command::new(&self.program).args(&self.check).output();
        let loads = loads.is_ok_and(|output| output.status.success());
        if !loads {
            skip(test, &self.missing);
        }
        loads
    }
}

/// The lines that a snippet prints, one for each of its two calls.
fn answers(db: &TestDb, interpreter: &Interpreter, file: &str) -> Vec<serde_json::Value> {
    let path = db.url.trim_start_matches("sqlite:").split('?').next().unwrap_or_default();
    let output = Command::new(&interpreter.program)
        .arg(folder().join(file))
        .env("DATABASE_URL", &db.url)
        .env("DATABASE_FILE", path)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file} failed: {errors}");

    let answers: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 2, "one line for each call: {answers:?}");
    answers
}

/// Runs a consumer that gets the same event twice.
async fn run_inbox(test: &str, server: TestServer, interpreter: &Interpreter) {
    let name = format!("{}::{test}", module_path!());
    if !interpreter.loads(&name) {
        return;
    }
    let Some(db) = TestDb::open_empty(server, &name).await else { return };
    db.store.migrate(&[]).await.unwrap();
    db.execute("CREATE TABLE mails (order_id varchar(50) NOT NULL)").await;
    let answers = answers(&db, interpreter, &format!("{test}.py"));
    let new: Vec<_> = answers.iter().map(|answer| answer["new"].as_bool().unwrap()).collect();
    assert_eq!(new, [true, false]);
    assert_eq!(db.integer("SELECT count(*) FROM mails").await, 1, "one effect");
    let ledgers = db.store.consumer_ledgers().await.unwrap();
    assert!(ledgers[0].consumer == "mailer" && ledgers[0].balanced(), "{ledgers:?}");
    assert_eq!((ledgers[0].received, ledgers[0].ignored), (2, 1));
}

/// Runs a snippet, which calls its business function twice with the same request id, and looks at
/// what a relay would get.
async fn run(test: &str, server: TestServer, interpreter: &Interpreter, file: &str) {
    let test = format!("{}::{test}", module_path!());
    if !interpreter.loads(&test) {
        return;
    }
    let Some(db) = TestDb::open(server, &test).await else { return };
    for statement in BUSINESS {
        db.execute(statement).await;
    }
    let answers = answers(&db, interpreter, file);
    assert_eq!(answers[0]["duplicate"], false);
    assert_eq!(answers[1]["duplicate"], true, "the repeat is answered as one");
    assert_eq!(answers[0]["id"], answers[1]["id"], "with the id of the first");

    assert_eq!(db.integer("SELECT count(*) FROM calls").await, 2, "both transactions committed");
    assert_eq!(db.integer("SELECT count(*) FROM orders").await, 1, "the business happened once");

    let relay = db.relay("relay-a").await;
    let claimed = db.claim(&relay, 10).await;
    assert_eq!(claimed.len(), 1, "one event, and it can be claimed");
    let event = &claimed[0];
    assert_eq!(answers[0]["id"], event.id);
    assert_eq!(event.hash_matches(), Some(true), "the relay verifies the snippet's hash");
    assert_eq!(event.request_id.as_deref(), Some("order-1001"));
    assert_eq!((event.aggregate_type.as_str(), event.aggregate_id.as_str()), ("order", "1001"));
    assert_eq!(event.event_type, "OrderPlaced");
    let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
    assert_eq!(payload, serde_json::json!({ "order": "1001", "amount": 25 }));
    let headers = event.headers().unwrap();
    assert_eq!(headers.get("source").map(String::as_str), Some("shop"));
    assert_eq!(db.deliver(&relay, &claimed, OnSuccess::Delete).await, 1);
    db.assert_balanced().await;
}
