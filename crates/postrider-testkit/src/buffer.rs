//! A buffer on Redis for one test, and the table that it is saved to.

use std::sync::Arc;
use std::time::Duration;

use postrider::buffer::{Buffer, BufferLook, BufferSettings};
use postrider_relay::{BufferConfig, Relay, RelayConfig};
use postrider_store::{BatchTarget, Database, TableTarget};
use redis::FromRedisValue;

use crate::{TestDb, eventually, skip};

/// A buffer with a unique name.
pub struct TestBuffer {
    /// The application's handle.
    pub buffer: Buffer,
    /// URL of the Redis server.
    pub url: String,
    /// The table `likes`, with the columns `post` and `total`.
    pub target: BatchTarget,
}

impl TestBuffer {
    /// Creates a buffer on the server that the variable names, with its table in the database.
    /// `None`, noted as skipped, if there is no server.
    pub async fn open(db: &TestDb, variable: &str, test: &str) -> Option<Self> {
        match std::env::var(variable) {
            Ok(url) => Some(Self::on(db, &url).await),
            Err(_) => {
                skip(test, &format!("the variable {variable} is not set"));
                None
            }
        }
    }

    /// Creates a buffer on a given server.
    pub async fn on(db: &TestDb, url: &str) -> Self {
        let name = format!("b{}", uuid::Uuid::new_v4().simple());
        let table = "CREATE TABLE IF NOT EXISTS likes \
                     (post varchar(40) PRIMARY KEY, total bigint NOT NULL)";
        db.execute(table).await;
        let target = BatchTarget::Table(TableTarget::new("likes", "post", "total").unwrap());
        let buffer = Buffer::new(BufferSettings::new(name, url)).unwrap();
        Self { buffer, url: url.to_owned(), target }
    }

    /// Returns the same buffer on another server, such as a replica.
    pub fn elsewhere(&self, url: &str) -> Self {
        let buffer = Buffer::new(BufferSettings::new(self.buffer.name(), url)).unwrap();
        Self { buffer, url: url.to_owned(), target: self.target.clone() }
    }

    /// Returns settings for another handle on the same buffer.
    pub fn settings(&self) -> BufferSettings {
        BufferSettings::new(self.buffer.name(), &self.url)
    }

    /// Returns a worker's configuration with short times.
    pub fn config(&self) -> BufferConfig {
        self.config_of(self.settings())
    }

    /// Like [`config`](Self::config), with other settings.
    pub fn config_of(&self, settings: BufferSettings) -> BufferConfig {
        let buffer = Arc::new(Buffer::new(settings).unwrap());
        let mut config = BufferConfig::new(buffer, self.target.clone());
        config.flush_every = Duration::from_millis(20);
        config
    }

    /// Returns a relay that only works on the buffer.
    pub fn relay(&self, store: &Arc<dyn Database>, config: RelayConfig) -> Relay {
        Relay::new(Arc::clone(store), config).buffer(self.config())
    }

    /// Sends a command to the server.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.unwrap()
    }

    /// Waits until the buffer is empty and no batch is left.
    pub async fn until_empty(&self) -> BufferLook {
        eventually("the buffer is empty", async || {
            let look = self.buffer.look().await.ok()?;
            (look.fields == 0 && look.batches.is_empty()).then_some(look)
        })
        .await
    }

    /// Asserts that every entry that was moved has ended, and that the database agrees.
    pub async fn assert_balanced(&self, db: &TestDb) {
        let look = self.buffer.look().await.unwrap();
        let ledger = look.ledger;
        let ended =
            ledger.applied + ledger.ignored + ledger.given_back + ledger.dead + look.waiting();
        assert_eq!(ledger.moved, ended, "{look:?}");
        let recorded = db.store.batch_ledger(self.buffer.name()).await.unwrap();
        let signed = |count: u64| i64::try_from(count).unwrap();
        assert_eq!(
            recorded.applied,
            signed(ledger.applied + ledger.ignored),
            "{recorded:?} {look:?}"
        );
        let cancelled = signed(ledger.given_back + ledger.dead);
        assert_eq!(recorded.cancelled, cancelled, "{recorded:?} {look:?}");
    }
}

/// Returns the sum of all saved counts.
pub async fn saved(db: &TestDb) -> i64 {
    db.integer("SELECT COALESCE(SUM(total), 0) FROM likes").await
}
