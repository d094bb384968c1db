//! A new database per test, with the same interface on every store.

mod client;
mod disposal;
mod pool;
mod server;
mod tx;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::Outbox;
use postrider_store::{ConnectOptions, Database, Dedupe, OutboxSpec, StoreKind, connect};

use disposal::Disposal;
pub(crate) use pool::Pool;
pub use server::TestServer;
pub use tx::TestTx;

/// Maximum number of connections of each pool. Enough for a case that holds two transactions open
/// and claims from four tasks; few enough that concurrent tests stay below a server's limit.
const CONNECTIONS_MAX: u32 = 6;

/// Format in which the SQLite store writes times.
const SQLITE_TIME: &str = "%Y-%m-%dT%H:%M:%fZ";

/// A database for one test. It is dropped with the last clone of this value, even on a panic.
#[derive(Clone)]
pub struct TestDb {
    /// The store under test.
    pub store: Arc<dyn Database>,
    /// URL of the database.
    pub url: String,
    /// The server of the database.
    pub server: TestServer,
    /// The outbox that most cases use.
    pub outbox: Outbox,
    pool: Pool,
    names: Arc<AtomicU64>,
    // Last, so that the pools above are closed before the database is dropped.
    disposal: Arc<Disposal>,
}

impl TestDb {
    /// Creates a database with one outbox, `orders`. `None`, noted as skipped, if there is no
    /// server.
    pub async fn open(server: impl Into<TestServer>, test: &str) -> Option<Self> {
        let spec = OutboxSpec::new(Outbox::new("orders").unwrap());
        Self::open_with(server, test, &[spec]).await
    }

    /// Creates a database with the given outboxes.
    pub async fn open_with(
        server: impl Into<TestServer>,
        test: &str,
        outboxes: &[OutboxSpec],
    ) -> Option<Self> {
        let db = Self::open_empty(server, test).await?;
        db.store.migrate(outboxes).await.unwrap();
        let outbox = outboxes.first().map_or_else(|| db.outbox.clone(), |s| s.outbox.clone());
        Some(Self { outbox, ..db })
    }

    /// Creates a database without tables.
    pub async fn open_empty(server: impl Into<TestServer>, test: &str) -> Option<Self> {
        let server = server.into();
        let server_url = match server.variable().map(|name| (name, std::env::var(name))) {
            None => String::new(),
            Some((_, Ok(url))) => url,
            Some((variable, Err(_))) => {
                crate::skip(test, &format!("the variable {variable} is not set"));
                return None;
            }
        };
        Some(Self::create(server, &server_url).await)
    }

    /// Opens the database of a server that only this test uses, without tables. It is not dropped.
    pub async fn on(server: impl Into<TestServer>, private: &crate::PrivateServer) -> Self {
        let server = server.into();
        let disposal = Disposal::none(server.kind(), &private.url);
        Self::reach(server, disposal, private.url.clone()).await
    }

    /// Creates another database of the same kind, without tables.
    pub async fn another_empty(&self) -> Self {
        Self::create(self.server, self.disposal.server_url()).await
    }

    async fn create(server: TestServer, server_url: &str) -> Self {
        let (disposal, url) = Disposal::create(server.kind(), server_url).await;
        Self::reach(server, disposal, url).await
    }

    async fn reach(server: TestServer, disposal: Disposal, url: String) -> Self {
        let options = ConnectOptions { connections_max: CONNECTIONS_MAX, create: true };
        let store = connect(&url, &options).await.unwrap();
        let pool = Pool::connect(server.kind(), &url, CONNECTIONS_MAX).await;
        let outbox = Outbox::new("orders").unwrap();
        let names = Arc::new(AtomicU64::new(0));
        Self { store, url, server, outbox, pool, names, disposal: Arc::new(disposal) }
    }

    /// Returns the same database, with another outbox for the following steps.
    #[must_use]
    pub fn with_outbox(self, outbox: Outbox) -> Self {
        Self { outbox, ..self }
    }

    /// Returns the same database, reached by another store and URL (through a proxy), with one
    /// connection each.
    pub(crate) async fn reached_by(&self, store: Arc<dyn Database>, url: &str) -> Self {
        let pool = Pool::connect(store.kind(), url, 1).await;
        Self { store, pool, url: url.to_owned(), ..self.clone() }
    }

    /// Adds an outbox with a unique name.
    pub async fn add_outbox(&self, dedupe: Dedupe) -> Outbox {
        let outbox = Outbox::new(&format!("extra_{}", self.next_number())).unwrap();
        let spec = OutboxSpec { dedupe, ..OutboxSpec::new(outbox.clone()) };
        self.store.migrate(&[spec]).await.unwrap();
        outbox
    }

    /// Begins the application's transaction (on SQLite with IMMEDIATE, as documented).
    pub async fn begin(&self) -> TestTx {
        self.pool.begin().await
    }

    /// Like [`TestDb::begin`], with one snapshot for the whole transaction.
    pub async fn begin_repeatable_read(&self) -> TestTx {
        self.pool.begin_repeatable_read().await
    }

    /// Like [`TestDb::begin`], for use in another task.
    pub fn begin_later(&self) -> impl Future<Output = TestTx> + Send + 'static {
        let pool = self.pool.clone();
        async move { pool.begin().await }
    }

    /// Runs one or more statements outside of any transaction; returns the number of changed rows.
    pub async fn execute(&self, sql: &str) -> u64 {
        self.pool.execute(sql).await.unwrap_or_else(|error| panic!("{error}\nin: {sql}"))
    }

    /// Like [`TestDb::execute`], for tests that expect an error.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        self.pool.execute(sql).await
    }

    /// Returns the integer result of a query.
    pub async fn integer(&self, query: &str) -> i64 {
        let found = self.pool.integer(query).await;
        found.unwrap_or_else(|error| panic!("{error}\nin: {query}"))
    }

    /// Returns the text result of a query; `None` for NULL or no row.
    pub async fn text(&self, query: &str) -> Option<String> {
        let found = self.pool.text(query).await;
        found.unwrap_or_else(|error| panic!("{error}\nin: {query}"))
    }

    /// Moves a time column of some rows into the past: the effect of waiting, without the wait. A
    /// NULL stays NULL.
    pub async fn age(&self, table: &str, column: &str, by: Duration, condition: &str) -> u64 {
        self.shift(table, column, ('-', by), condition).await
    }

    /// Moves a time column of some rows into the future: the effect of a clock that is set back.
    pub async fn set_ahead(&self, table: &str, column: &str, by: Duration, condition: &str) -> u64 {
        self.shift(table, column, ('+', by), condition).await
    }

    async fn shift(
        &self,
        table: &str,
        column: &str,
        (sign, by): (char, Duration),
        condition: &str,
    ) -> u64 {
        let seconds = by.as_secs();
        let shifted = match self.store.kind() {
            StoreKind::Postgres => format!("{column} {sign} interval '{seconds} seconds'"),
            StoreKind::Mysql => format!("{column} {sign} INTERVAL {seconds} SECOND"),
            StoreKind::Sqlite => {
                format!("strftime('{SQLITE_TIME}', {column}, '{sign}{seconds} seconds')")
            }
        };
        self.execute(&format!("UPDATE {table} SET {column} = {shifted} WHERE {condition}")).await
    }

    /// Makes the database refuse relays that want to register, permanently.
    pub async fn refuse_relays(&self) {
        let statement = match self.store.kind() {
            StoreKind::Postgres | StoreKind::Mysql => {
                "ALTER TABLE postrider_relays ADD CONSTRAINT no_relays_here CHECK (1 = 0)"
            }
            StoreKind::Sqlite => {
                "CREATE TRIGGER no_relays_here BEFORE INSERT ON postrider_relays
                 BEGIN SELECT RAISE(ABORT, 'no_relays_here'); END"
            }
        };
        self.execute(statement).await;
    }

    /// Returns a point in time (`YYYY-MM-DD hh:mm:ss`, UTC) as SQL.
    pub fn time(&self, utc: &str) -> String {
        match self.store.kind() {
            StoreKind::Postgres => format!("timestamptz '{utc}+00'"),
            StoreKind::Mysql => format!("TIMESTAMP '{utc}'"),
            StoreKind::Sqlite => format!("strftime('{SQLITE_TIME}', '{utc}')"),
        }
    }

    /// Runs a script like the database's own command-line client.
    pub async fn run_script(&self, script: &str) {
        for part in client::statements(self.store.kind(), script) {
            self.execute(&part).await;
        }
    }

    /// Returns a number that this database has not returned before.
    pub fn next_number(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed) + 1
    }
}
