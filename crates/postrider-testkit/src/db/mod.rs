//! A fresh database per test, the same on every store.

mod client;
mod disposal;
mod pool;
mod tx;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::store::{Database, StoreKind};
use postrider::{ConnectOptions, Dedupe, Outbox, OutboxSpec, connect};

use disposal::Disposal;
pub(crate) use pool::Pool;
pub use tx::TestTx;

/// Connections of each pool. Enough for a case that holds two transactions open and claims from
/// four tasks; few enough that tests running side by side stay below a server's limit.
const CONNECTIONS_MAX: u32 = 6;

/// How the SQLite store writes times.
const SQLITE_TIME: &str = "%Y-%m-%dT%H:%M:%fZ";

/// A database of its own for one test. It is dropped with the last clone of this value, on a panic
/// too.
#[derive(Clone)]
pub struct TestDb {
    /// The store under test.
    pub store: Arc<dyn Database>,
    /// Where the database is.
    pub url: String,
    /// The outbox that most cases use.
    pub outbox: Outbox,
    pool: Pool,
    names: Arc<AtomicU64>,
    // Last, so that the pools above are closed when the database is dropped.
    disposal: Arc<Disposal>,
}

impl TestDb {
    /// A database with one outbox, `orders`. `None`, noted as skipped, where there is no server.
    pub async fn open(kind: StoreKind, test: &str) -> Option<Self> {
        let spec = OutboxSpec::new(Outbox::new("orders").unwrap());
        Self::open_with(kind, test, &[spec]).await
    }

    /// A database with the given outboxes.
    pub async fn open_with(kind: StoreKind, test: &str, outboxes: &[OutboxSpec]) -> Option<Self> {
        let db = Self::open_empty(kind, test).await?;
        db.store.migrate(outboxes).await.unwrap();
        let outbox = outboxes.first().map_or_else(|| db.outbox.clone(), |s| s.outbox.clone());
        Some(Self { outbox, ..db })
    }

    /// A database without any table.
    pub async fn open_empty(kind: StoreKind, test: &str) -> Option<Self> {
        let server = match kind {
            StoreKind::Postgres => Some("POSTGRES_URL"),
            StoreKind::Mysql => Some("MYSQL_URL"),
            StoreKind::Sqlite => None,
        };
        let server_url = match server.map(|variable| (variable, std::env::var(variable))) {
            None => String::new(),
            Some((_, Ok(url))) => url,
            Some((variable, Err(_))) => {
                crate::skip(test, &format!("the variable {variable} is not set"));
                return None;
            }
        };
        Some(Self::create(kind, &server_url).await)
    }

    /// The database of a server that only this test uses, without any table. It is not dropped.
    pub async fn on(kind: StoreKind, server: &crate::PrivateServer) -> Self {
        Self::reach(kind, Disposal::none(kind, &server.url), server.url.clone()).await
    }

    /// Another database of the same kind, without any table.
    pub async fn another_empty(&self) -> Self {
        Self::create(self.store.kind(), self.disposal.server_url()).await
    }

    async fn create(kind: StoreKind, server_url: &str) -> Self {
        let (disposal, url) = Disposal::create(kind, server_url).await;
        Self::reach(kind, disposal, url).await
    }

    async fn reach(kind: StoreKind, disposal: Disposal, url: String) -> Self {
        let options = ConnectOptions { connections_max: CONNECTIONS_MAX, create: true };
        let store = connect(&url, &options).await.unwrap();
        let pool = Pool::connect(kind, &url, CONNECTIONS_MAX).await;
        let outbox = Outbox::new("orders").unwrap();
        let names = Arc::new(AtomicU64::new(0));
        Self { store, url, outbox, pool, names, disposal: Arc::new(disposal) }
    }

    /// The same database, with another outbox for the steps that follow.
    #[must_use]
    pub fn with_outbox(self, outbox: Outbox) -> Self {
        Self { outbox, ..self }
    }

    /// The same database, reached by another store and URL (through a proxy), one connection each.
    pub(crate) async fn reached_by(&self, store: Arc<dyn Database>, url: &str) -> Self {
        let pool = Pool::connect(store.kind(), url, 1).await;
        Self { store, pool, url: url.to_owned(), ..self.clone() }
    }

    /// Adds an outbox with a name of its own.
    pub async fn add_outbox(&self, dedupe: Dedupe) -> Outbox {
        let outbox = Outbox::new(&format!("extra_{}", self.next_number())).unwrap();
        let spec = OutboxSpec { dedupe, ..OutboxSpec::new(outbox.clone()) };
        self.store.migrate(&[spec]).await.unwrap();
        outbox
    }

    /// Begins the application's transaction (on SQLite as the documentation asks for: IMMEDIATE).
    pub async fn begin(&self) -> TestTx {
        self.pool.begin().await
    }

    /// As [`TestDb::begin`], in one snapshot that stays the same to the end.
    pub async fn begin_repeatable_read(&self) -> TestTx {
        self.pool.begin_repeatable_read().await
    }

    /// As [`TestDb::begin`], from another task.
    pub fn begin_later(&self) -> impl Future<Output = TestTx> + Send + 'static {
        let pool = self.pool.clone();
        async move { pool.begin().await }
    }

    /// Runs a statement, or several, outside of any transaction; answers the rows changed.
    pub async fn execute(&self, sql: &str) -> u64 {
        self.pool.execute(sql).await.unwrap_or_else(|error| panic!("{error}\nin: {sql}"))
    }

    /// As [`TestDb::execute`], where an error is part of the test.
    ///
    /// # Errors
    /// What the database said.
    pub async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        self.pool.execute(sql).await
    }

    /// The integer that a query answers.
    pub async fn integer(&self, query: &str) -> i64 {
        let found = self.pool.integer(query).await;
        found.unwrap_or_else(|error| panic!("{error}\nin: {query}"))
    }

    /// The text that a query answers; `None` for NULL or no row.
    pub async fn text(&self, query: &str) -> Option<String> {
        let found = self.pool.text(query).await;
        found.unwrap_or_else(|error| panic!("{error}\nin: {query}"))
    }

    /// Moves a time column of some rows into the past: what waiting would do, without the wait.
    /// A NULL stays NULL.
    pub async fn age(&self, table: &str, column: &str, by: Duration, condition: &str) -> u64 {
        self.shift(table, column, ('-', by), condition).await
    }

    /// Moves a time column of some rows into the future: what a clock that is set back does.
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

    /// From now on, and for good, the database refuses relays that want to register.
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

    /// A point in time (`YYYY-MM-DD hh:mm:ss`, UTC) as SQL.
    pub fn time(&self, utc: &str) -> String {
        match self.store.kind() {
            StoreKind::Postgres => format!("timestamptz '{utc}+00'"),
            StoreKind::Mysql => format!("TIMESTAMP '{utc}'"),
            StoreKind::Sqlite => format!("strftime('{SQLITE_TIME}', '{utc}')"),
        }
    }

    /// Runs a script as the database's own command-line client would.
    pub async fn run_script(&self, script: &str) {
        for part in client::statements(self.store.kind(), script) {
            self.execute(&part).await;
        }
    }

    /// A number that this database has not given out before.
    pub fn next_number(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed) + 1
    }
}
