//! Everything that a bench creates and must remove: outboxes, plain tables, inboxes, buffers,
//! topics, relays.

use std::sync::{Arc, Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};
use postrider::{
    Inbox, Outbox,
    buffer::{Buffer, BufferSettings},
};
use postrider_command::{Failure, connect};
use postrider_store::{ClaimMode, Database, OutboxSpec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bare::Bare;
use super::buffer_bare;
use super::claims::Claims;
use super::event::Maker;
use super::kafka;
use crate::ServeApi;

/// Number of events per append while filling. It limits the memory, whatever the number of events.
const FILL_BATCH: u64 = 1_000;

/// The environment of one run. Call [`clean_up`](Stage::clean_up) at the end, whatever the outcome.
pub(super) struct Stage {
    pub(super) url: String,
    pub(super) store: Arc<dyn Database>,
    /// One connection, for filling and for the comparison with a client without Postrider.
    pub(super) bare: Bare,
    pub(super) claims: Claims,
    connections_max: u32,
    name: String,
    claim: ClaimMode,
    made: Mutex<Vec<Made>>,
    /// Stops everything that still runs at the end.
    pub(super) stop: CancellationToken,
    pub(super) running: TaskTracker,
    pub(super) serve_api: ServeApi,
}

enum Made {
    Outbox(Outbox),
    Table(String),
    Inbox(String),
    Topic { brokers: String, name: String },
    Buffer(Arc<Buffer>),
}

impl Stage {
    pub(super) async fn open(
        url: &str,
        connections_max: u32,
        name: Option<&str>,
        claim: ClaimMode,
        serve_api: ServeApi,
    ) -> Result<Self, Failure> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            url: url.to_owned(),
            store: connect(url, connections_max, true).await?,
            bare: Bare::connect(url, 1).await?,
            claims: Claims::install()?,
            connections_max,
            name: name.map_or_else(|| format!("bench_{}", &unique[..8]), str::to_owned),
            claim,
            made: Mutex::default(),
            stop: CancellationToken::new(),
            running: TaskTracker::new(),
            serve_api,
        })
    }

    /// Opens a separate store for one more relay.
    pub(super) async fn another_store(&self) -> Result<Arc<dyn Database>, Failure> {
        connect(&self.url, self.connections_max, false).await
    }

    /// Creates an outbox.
    pub(super) async fn outbox(&self, suffix: &str) -> Result<Outbox, Failure> {
        let outbox = self.unused_name(suffix).await?;
        // Recorded first: an interrupted migration leaves tables behind, too.
        self.made().push(Made::Outbox(outbox.clone()));
        let spec = OutboxSpec { claim: self.claim, ..OutboxSpec::new(outbox.clone()) };
        self.store.migrate(&[spec]).await?;
        Ok(outbox)
    }

    /// Creates a plain table, which appends are compared with.
    pub(super) async fn plain_table(&self, suffix: &str) -> Result<String, Failure> {
        let table = self.unused_name(suffix).await?.table().to_owned();
        self.made().push(Made::Table(table.clone()));
        self.bare.create_plain_table(&table).await?;
        Ok(table)
    }

    /// Creates a table of keys and counts.
    pub(super) async fn count_table(&self, suffix: &str) -> Result<String, Failure> {
        let table = self.unused_name(suffix).await?.table().to_owned();
        self.made().push(Made::Table(table.clone()));
        buffer_bare::create(&self.bare, &table).await?;
        Ok(table)
    }

    /// Creates a buffer with a unique name.
    pub(super) fn buffer(&self, url: &str) -> Result<BufferSettings, Failure> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let settings = BufferSettings::new(format!("bench_{}", &unique[..8]), url);
        self.made().push(Made::Buffer(Arc::new(Buffer::new(settings.clone())?)));
        Ok(settings)
    }

    /// Creates an inbox with its own name, in the table that all inboxes share.
    pub(super) fn inbox(&self) -> Result<Inbox, Failure> {
        let inbox = Inbox::new(&self.name).map_err(|error| Failure::Usage(error.to_string()))?;
        self.made().push(Made::Inbox(self.name.clone()));
        Ok(inbox)
    }

    /// Creates a Kafka topic with a unique name.
    pub(super) async fn topic(&self, brokers: &str) -> Result<String, Failure> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("postrider-bench-{}", &unique[..8]);
        self.made().push(Made::Topic { brokers: brokers.to_owned(), name: name.clone() });
        kafka::create_topic(brokers, &name).await?;
        Ok(name)
    }

    /// Returns a name that is not in use. An existing outbox or table belongs to someone: the bench
    /// would fill, empty and drop it.
    async fn unused_name(&self, suffix: &str) -> Result<Outbox, Failure> {
        let name = format!("{}{suffix}", self.name);
        let outbox = Outbox::new(&name)?;
        match self.bare.exists(&outbox).await? {
            false => Ok(outbox),
            true => Err(Failure::Usage(format!(
                "--outbox: `{name}` or its table exists in this store, and a bench drops what it \
                 used; give another name, or none"
            ))),
        }
    }

    /// Appends the events with numbers below `events`, in batches.
    pub(super) async fn fill(
        &self,
        outbox: &Outbox,
        maker: &Maker,
        events: u64,
    ) -> Result<(), Failure> {
        let bar = bar("filling", events);
        let mut done = 0;
        while done < events {
            let count = FILL_BATCH.min(events - done);
            let batch: Vec<_> = (done..done + count).map(|number| maker.make(number)).collect();
            drop(self.bare.appender().append_all(outbox, &batch).await?);
            done += count;
            bar.inc(count);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Drops an outbox before the end, so that later runs have the disk to themselves.
    pub(super) async fn drop_outbox(&self, outbox: &Outbox) -> Result<(), Failure> {
        self.store.drop_outbox(outbox).await?;
        self.made().retain(|made| !matches!(made, Made::Outbox(known) if known == outbox));
        Ok(())
    }

    /// Stops everything that runs and drops everything that was created, however the run ended.
    pub(super) async fn clean_up(&self) -> Result<(), Failure> {
        self.stop.cancel();
        self.running.close();
        self.running.wait().await;
        let made = std::mem::take(&mut *self.made());
        let mut outcome = Ok(());
        for thing in made {
            let dropped = match thing {
                Made::Outbox(outbox) => {
                    self.store.drop_outbox(&outbox).await.map_err(Failure::from)
                }
                Made::Table(table) => self.bare.drop_table(&table).await,
                Made::Inbox(consumer) => self.bare.empty_inbox(&consumer).await,
                Made::Topic { brokers, name } => kafka::delete_topic(&brokers, &name).await,
                Made::Buffer(buffer) => {
                    let removed = buffer.remove().await.map_err(Failure::from);
                    buffer_bare::forget(&self.bare, buffer.name()).await.and(removed)
                }
            };
            outcome = outcome.and(dropped);
        }
        outcome
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a progress bar on standard error, which shows only on a terminal.
pub(super) fn bar(title: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg:>12} {bar:40} {human_pos}/{human_len}  {per_sec}  {eta} left",
    );
    let bar = ProgressBar::new(total).with_message(title);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
