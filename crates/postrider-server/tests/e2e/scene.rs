//! What a test plays in: a database, a receiver, somebody to be alerted, and the installed binary.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use postrider::{Appended, NewEvent};
use postrider_store::StoreKind;
use postrider_testkit::{
    HttpTarget, Installation, PATIENCE, TestDb, TestServer, conformance::steps::order, eventually,
};
use serde_json::Value;
use toml::Table;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_postrider");
/// The outbox of every scene.
pub(crate) const OUTBOX: &str = "orders";

/// The tests of one store's module.
macro_rules! tests {
    ($store:ident { $($case:ident),* $(,)? }) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $case() {
                let server = postrider_testkit::test_server!($store);
                let test = concat!(module_path!(), "::", stringify!($case));
                super::$case(crate::scene::Place::new(server, test)).await;
            }
        )*
    };
}
pub(crate) use tests;

/// Where a test runs: on which server, with which store, under which name.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) server: TestServer,
    pub(crate) kind: StoreKind,
    pub(crate) test: &'static str,
}

impl Place {
    pub(crate) fn new(server: TestServer, test: &'static str) -> Self {
        Self { server, kind: server.kind(), test }
    }
}

/// An event that was appended and committed.
#[derive(Debug, Clone)]
pub(crate) struct Committed {
    pub(crate) id: i64,
    pub(crate) event_id: String,
}

/// The configuration, with waits that are short enough for a test.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    store: Table,
    server: Table,
    api: Table,
    relay: Table,
    outbox: Table,
    sink: Table,
    alert: Option<Table>,
}

impl Settings {
    pub(crate) fn new() -> Self {
        let table = |text: &str| toml::from_str::<Table>(text).unwrap();
        Self {
            store: table("connections_max = 4"),
            server: table("listen = '127.0.0.1:0'"),
            api: table("stream_every = '100ms'\nlist_budget = '5s'"),
            relay: table(
                "lease = '6s'\nheartbeat_every = '500ms'\nstop_timeout = '20s'\n\
                 recover_every = '1s'\nfold_every = '500ms'\nmove_marked_every = '300ms'\n\
                 alert_cool_down = '200ms'\nbackup_folder = 'backup'",
            ),
            outbox: table(&format!(
                "name = '{OUTBOX}'\npreset = 'broker'\nsink = 'api'\nidle_poll = '100ms'\n\
                 backoff_first = '100ms'\nbackoff_max = '400ms'\nmax_retries = 3",
            )),
            sink: table("name = 'api'\nkind = 'http'"),
            alert: None,
        }
    }

    pub(crate) fn server(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.server.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn api(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.api.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn relay(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.relay.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn outbox(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.outbox.insert(key.to_owned(), value.into());
        self
    }

    /// A key of `[outbox.adopt]`.
    pub(crate) fn adopt(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        let adopt = self.outbox.entry("adopt").or_insert_with(|| Table::new().into());
        adopt.as_table_mut().unwrap().insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn sink(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        self.sink.insert(key.to_owned(), value.into());
        self
    }

    /// Alerts go to the scene's people, with or without payloads.
    pub(crate) fn alerts(mut self, payloads: bool) -> Self {
        let mut alert = Table::new();
        alert.insert("kind".to_owned(), "discord".into());
        alert.insert("payloads".to_owned(), payloads.into());
        self.alert = Some(alert);
        self
    }

    /// Alerts go to another channel.
    pub(crate) fn alert_to(mut self, channel: &str) -> Self {
        self.alert = Some(toml::from_str(channel).unwrap());
        self
    }

    pub(crate) fn thresholds(self, thresholds: &str) -> Self {
        self.outbox("alerts", toml::from_str::<Table>(thresholds).unwrap())
    }

    /// The configuration file.
    pub(crate) fn text(&self, store_url: &str, target: &HttpTarget, people: &HttpTarget) -> String {
        let Self { mut store, server, api, relay, outbox, mut sink, alert } = self.clone();
        store.entry("url").or_insert_with(|| store_url.into());
        let url = format!("{}/orders/{{aggregate_id}}", target.url());
        sink.entry("url").or_insert_with(|| url.into());
        let alerts: Vec<toml::Value> = alert
            .into_iter()
            .map(|mut alert| {
                if !alert.contains_key("host") {
                    alert.insert("url".to_owned(), format!("{}/webhook", people.url()).into());
                }
                alert.into()
            })
            .collect();
        let mut file = Table::new();
        file.insert("store".to_owned(), store.into());
        file.insert("server".to_owned(), server.into());
        file.insert("api".to_owned(), api.into());
        file.insert("relay".to_owned(), relay.into());
        file.insert("outbox".to_owned(), vec![toml::Value::from(outbox)].into());
        file.insert("sink".to_owned(), vec![toml::Value::from(sink)].into());
        file.insert("alert".to_owned(), alerts.into());
        toml::to_string(&file).unwrap()
    }
}

/// Everything that a test needs.
pub(crate) struct Scene {
    pub(crate) db: TestDb,
    /// Where the events go.
    pub(crate) target: HttpTarget,
    /// Where the alerts go.
    pub(crate) people: HttpTarget,
    pub(crate) site: Installation,
}

impl Scene {
    /// A scene with a migrated database. `None`, noted as skipped, where there is no server.
    pub(crate) async fn open(place: Place, settings: &Settings) -> Option<Self> {
        let db = TestDb::open(place.server, place.test).await?;
        Some(Self::with(db, settings).await)
    }

    /// A scene with a database that has no tables yet.
    pub(crate) async fn open_empty(place: Place, settings: &Settings) -> Option<Self> {
        let db = TestDb::open_empty(place.server, place.test).await?;
        Some(Self::with(db, settings).await)
    }

    pub(crate) async fn with(db: TestDb, settings: &Settings) -> Self {
        let (target, people) = (HttpTarget::start().await, HttpTarget::start().await);
        let site = Installation::new(BINARY, &settings.text(&db.url, &target, &people));
        Self { db, target, people, site }
    }

    /// Other settings for the daemons and commands that start from now on.
    pub(crate) fn configure(&self, settings: &Settings) {
        self.site.configure(&settings.text(&self.db.url, &self.target, &self.people));
    }

    /// Appends events in one transaction and commits.
    pub(crate) async fn append(&self, events: &[NewEvent]) -> Vec<Committed> {
        let mut tx = self.db.begin().await;
        let answers = tx.append_all(&self.db.outbox, events).await.unwrap();
        tx.commit().await.unwrap();
        let committed = answers.into_iter().map(|answer| match answer {
            Appended::New { id, event_id } => Committed { id, event_id },
            Appended::Duplicate { id } => panic!("event {id} was appended before"),
        });
        committed.collect()
    }

    /// Appends one event.
    pub(crate) async fn append_one(&self, event: NewEvent) -> Committed {
        self.append(&[event]).await.remove(0)
    }

    /// Appends small events.
    pub(crate) async fn append_orders(&self, count: usize) -> Vec<Committed> {
        let events: Vec<_> = (0..count).map(|_| order(self.db.next_number())).collect();
        self.append(&events).await
    }

    /// Waits until the outbox is empty. What stays behind is told with its state.
    pub(crate) async fn drained(&self) {
        let started = Instant::now();
        while self.db.count("").await > 0 {
            if started.elapsed() > PATIENCE {
                let rows = self.json(&["events", "list"]).await;
                panic!("after {PATIENCE:?}, the outbox still has: {rows:#}");
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// Waits until there are that many dead letters.
    pub(crate) async fn has_dead_letters(&self, count: i64) {
        let there = async || (self.db.count("_dlq").await == count).then_some(());
        eventually(&format!("{count} dead letters"), there).await;
    }

    /// Live rows with a status.
    pub(crate) async fn rows(&self, status: &str) -> i64 {
        let table = self.db.outbox.table();
        self.db.integer(&format!("SELECT count(*) FROM {table} WHERE status = '{status}'")).await
    }

    /// Waits until the receiver has each of these events.
    pub(crate) async fn received(&self, events: &[Committed]) {
        eventually("the receiver has every event", async || {
            let taken = self.target.taken();
            events.iter().all(|event| taken.contains_key(&event.event_id)).then_some(())
        })
        .await;
    }

    /// The end of every test: what was committed was received, nothing else was, and the ledger
    /// balance.
    pub(crate) async fn settle_up(&self, delivered: &[Committed], dead: usize) {
        let taken: HashSet<String> = self.target.taken().into_keys().collect();
        let committed: HashSet<String> = delivered.iter().map(|e| e.event_id.clone()).collect();
        let lost: Vec<_> = committed.difference(&taken).collect();
        assert!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), committed.len());
        let invented: Vec<_> = taken.difference(&committed).collect();
        assert!(invented.is_empty(), "received, but never committed: {invented:?}");
        let ledger = self.reconcile().await;
        assert_eq!(ledger["delivered"]["count"], committed.len(), "{ledger:#}");
        assert_eq!(ledger["dead"]["count"], dead, "{ledger:#}");
        assert_eq!(ledger["pending"]["count"], 0, "{ledger:#}");
    }

    /// The balanced ledger of the outbox, from the command.
    pub(crate) async fn reconcile(&self) -> Value {
        let ledger = self.site.run(&["reconcile", "--json"]).await.exits(0).json();
        assert_eq!(ledger[0]["outbox"], OUTBOX);
        assert_eq!(ledger[0]["balanced"], true, "{ledger:#}");
        ledger[0].clone()
    }

    /// A command on the scene's outbox that ends well, and what it prints.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--outbox", OUTBOX, "--json"][..]].concat();
        self.site.run(&args).await.exits(0).json()
    }

    /// The dead letters, newest first.
    pub(crate) async fn dead_letters(&self) -> Vec<Value> {
        self.json(&["dlq", "list"]).await.as_array().unwrap().clone()
    }
}
