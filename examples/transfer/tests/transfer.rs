//! Tests the complete path: bank, relay, broker, fraud detector; each its own process, which is
//! killed.
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider::Outbox;
use postrider_testkit::{
    Daemon, Installation, TestDb, TestServer, eventually,
    http_client::send,
    sinks::{Destination, KafkaDestination},
};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

const BINARY: &str = env!("CARGO_BIN_EXE_transfer-example");
const ACCOUNTS: u64 = 24;
const BALANCE: i64 = 1_000_000;
const CLIENTS: u64 = 8;
/// Pause of each client between transfers, which limits the size of the run.
const CLIENT_PAUSE: Duration = Duration::from_millis(50);

/// Number of lines of each process's log that a failure shows.
const LOG_LINES_SHOWN: usize = 12;

/// One run at a time: each has its own broker and up to five more processes.
static TURN: Mutex<()> = Mutex::const_new(());

/// Two databases, a broker, and the folder in which the processes run.
struct Site {
    bank: TestDb,
    fraud: TestDb,
    kafka: KafkaDestination,
    installation: Installation,
    started: AtomicU64,
}

impl Site {
    async fn open(server: TestServer, test: &str) -> Option<Self> {
        let kafka = KafkaDestination::private(test).await?;
        let bank = TestDb::open_empty(server, test).await?;
        let bank = bank.with_outbox(Outbox::new("transfers").unwrap());
        let fraud = bank.another_empty().await;
        let installation = Installation::new(BINARY, "");
        Some(Self { bank, fraud, kafka, installation, started: AtomicU64::new(0) })
    }

    fn variables(&self) -> [(&str, &str); 5] {
        [
            ("DATABASE_URL", &self.bank.url),
            ("FRAUD_DATABASE_URL", &self.fraud.url),
            ("KAFKA_BROKERS", &self.kafka.brokers),
            ("TOPIC", &self.kafka.topic),
            ("LISTEN", "127.0.0.1:0"),
        ]
    }

    /// Starts a relay or a fraud detector.
    fn start(&self, part: &'static str) -> Part {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let log = File::create(self.installation.path(&format!("{part}-{number}.log"))).unwrap();
        let child = Command::new(BINARY)
            .arg(part)
            .envs(self.variables())
            .current_dir(self.installation.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Part { part, child }
    }

    async fn logged(&self) -> i64 {
        // The first detector that starts creates the table.
        let count = "SELECT count(*) FROM risk_log";
        match self.fraud.try_execute(count).await {
            Ok(_) => self.fraud.integer(count).await,
            Err(_) => 0,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for file in std::fs::read_dir(self.installation.folder()).unwrap().flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.len().saturating_sub(LOG_LINES_SHOWN);
            eprintln!("{}:\n{}", file.path().display(), lines[last..].join("\n"));
        }
    }
}

/// A process that will be killed.
struct Part {
    part: &'static str,
    child: Child,
}

impl Part {
    /// Kills the process without warning, and starts it again.
    async fn replace(&mut self, site: &Site) {
        self.child.kill().await.unwrap();
        *self = site.start(self.part);
    }
}

macro_rules! on_stores {
    ($($case:ident),* $(,)?) => {
        on_stores!(@store postgres, Postgres: $($case),*);
        on_stores!(@store mariadb, Mariadb: $($case),*);
        on_stores!(@store mysql, Mysql: $($case),*);
        on_stores!(@store sqlite, Sqlite: $($case),*);
    };
    (@store $module:ident, $kind:ident: $($case:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    let server = postrider_testkit::TestServer::$kind;
                    let _turn = super::TURN.lock().await;
                    if let Some(site) = super::Site::open(server, name).await {
                        super::$case(site).await;
                    }
                }
            )*
        }
    };
}

on_stores!(
    relay_and_detector_killed_at_random_and_a_broker_restart_log_each_transfer_once_in_order,
);

/// A program whose relay cannot work must end: it would accept transfers and never publish them.
#[tokio::test]
async fn a_relay_that_cannot_work_ends_all_parts() {
    let Some(bank) = TestDb::open_empty(TestServer::Sqlite, "a_relay_that_cannot_work").await
    else {
        return;
    };
    bank.store.migrate(&[]).await.unwrap();
    bank.refuse_relays().await;
    let fraud = bank.another_empty().await;
    let variables = [
        ("DATABASE_URL", bank.url.as_str()),
        ("FRAUD_DATABASE_URL", &fraud.url),
        // No broker listens there: the detector waits for one.
        ("KAFKA_BROKERS", "127.0.0.1:1"),
        ("LISTEN", "127.0.0.1:0"),
    ];
    let parts = Installation::new(BINARY, "");
    parts.run_with(&[], &variables, "").await.exits(1).says(&["no_relays_here"]);
}

async fn open_accounts(api: &Daemon) {
    for account in 0..ACCOUNTS {
        let body = json!({ "id": format!("a-{account}"), "balance": BALANCE }).to_string();
        assert_eq!(api.post("/accounts", &body).await.status, 201);
    }
    let transfer = |request_id: &str, from: &str, amount: Value| {
        json!({ "request_id": request_id, "from": from, "to": "a-1", "amount": amount }).to_string()
    };
    for (body, status) in [
        (transfer("bad-1", "a-0", json!(-1)), 400),
        (transfer("bad-1", "a-0", json!(0.5)), 400),
        (transfer("bad-1", "a-1", json!(1)), 400),
        (transfer("bad 1", "a-0", json!(1)), 400),
        (transfer("bad-1", "nobody", json!(1)), 404),
        (transfer("bad-1", "a-0", json!(BALANCE + 1)), 422),
    ] {
        let answer = api.post("/transfers", &body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
}

/// Makes transfers without end, until aborted between two of them.
fn clients(address: SocketAddr, until: Instant) -> Vec<JoinHandle<()>> {
    let client = move |client: u64| async move {
        let mut number = 0;
        while Instant::now() < until {
            let (from, to) = (client * 3 + number % 3, (client * 3 + number * 7 + 5) % ACCOUNTS);
            number += 1;
            if from == to {
                continue;
            }
            let body = json!({
                "request_id": format!("r-{client}-{number}"),
                "from": format!("a-{from}"),
                "to": format!("a-{to}"),
                "amount": number % 50 + 1,
            });
            let json = [("content-type", "application/json")];
            let answer = send(address, "POST", "/transfers", &json, body.to_string()).await;
            assert_eq!(answer.unwrap().status, 200);
            tokio::time::sleep(CLIENT_PAUSE).await;
        }
    };
    (0..CLIENTS).map(|number| tokio::spawn(client(number))).collect()
}

/// `TRANSFER_SECONDS=120` is the full run.
async fn relay_and_detector_killed_at_random_and_a_broker_restart_log_each_transfer_once_in_order(
    site: Site,
) {
    let seconds = std::env::var("TRANSFER_SECONDS").ok().and_then(|n| n.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(20));
    let site = Arc::new(site);
    let api = site.installation.serve(&["api"], &site.variables()).await;
    open_accounts(&api).await;
    let mut parts = ["relay", "fraud", "relay", "fraud"].map(|part| site.start(part));

    let started = Instant::now();
    let clients = clients(api.address(), started + length);
    let mut broker_is_due = true;
    while started.elapsed() < length {
        let pause = rand::rng().random_range(1_000..4_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let victim = rand::rng().random_range(0..parts.len());
        parts[victim].replace(&site).await;
        if broker_is_due && started.elapsed() > length / 2 {
            broker_is_due = false;
            site.kafka.kill().await;
            site.kafka.start().await;
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    let made = site.bank.integer("SELECT count(*) FROM transactions").await;
    assert!(made > 100, "{made} transfers");
    let (ended, before) = (Instant::now(), site.logged().await);
    eventually("every transfer is published", async || {
        let live = site.bank.integer("SELECT count(*) FROM transfers_outbox").await;
        (live == 0).then_some(())
    })
    .await;
    let published = ended.elapsed();
    let all = async || (site.logged().await >= made).then_some(());
    eventually("every transfer is in the risk log", all).await;
    println!(
        "{before} logged before the end, published {published:?} and logged {:?} after it",
        ended.elapsed()
    );
    all_is_well(&site, made).await;
    api.stop().await;
}

async fn all_is_well(site: &Site, made: i64) {
    // Every message of the topic has been received, including the repeats.
    let arrived = site.kafka.arrived().await;
    let distinct: BTreeMap<&str, usize> =
        arrived.iter().map(|message| (message.event_id.as_str(), 1)).collect();
    assert_eq!(distinct.len(), usize::try_from(made).unwrap(), "each transfer is in the topic");
    let repeats = i64::try_from(arrived.len() - distinct.len()).unwrap();
    let ledger = eventually("the detector has read the whole topic", async || {
        let ledgers = site.fraud.store.consumer_ledgers().await.unwrap();
        ledgers.into_iter().find(|ledger| ledger.applied == made && ledger.ignored >= repeats)
    })
    .await;
    assert!(ledger.balanced(), "{ledger:?}");
    assert_eq!(ledger.dead, 0, "{ledger:?}");
    println!("{made} transfers, {repeats} repeats in the topic, {} ignored", ledger.ignored);

    let log = &site.fraud;
    assert_eq!(log.integer("SELECT count(*) FROM risk_log").await, made, "exactly once");
    let ids = "SELECT count(DISTINCT event_id) FROM risk_log";
    assert_eq!(log.integer(ids).await, made);
    let overtaken = "SELECT count(*) FROM risk_log AS a JOIN risk_log AS b
        ON a.account = b.account AND a.id < b.id AND a.transaction_id > b.transaction_id";
    assert_eq!(log.integer(overtaken).await, 0, "each account's transfers in their order");
    let total = site.bank.integer("SELECT sum(balance) FROM accounts").await;
    assert_eq!(total, i64::try_from(ACCOUNTS).unwrap() * BALANCE, "to the unit");
    site.bank.assert_balanced().await;
}
