//! The database below operator work: a [`Connection`] runs statements, a [`SqlStore`] has pools of
//! connections, a [`Session`] is a transaction.

use std::fmt::Display;
use std::time::Duration;

use async_trait::async_trait;
use postrider::{AppendError, Appended, NewEvent, Outbox};
use sqlx::{Pool, Transaction};

use super::audit::audit;
use super::dialect::Dialect;
use super::row::Row;
use super::statement::Query;
use crate::StoreError;
use crate::contract::job_step::Entry;
use crate::contract::{Batch, Lease, OldestRows, Result, StoreKind, TableTarget, begin};

/// One connection, in a transaction or not. A call is one statement, prepared and kept in the
/// driver's cache. Errors are the driver's; the store sorts them.
#[async_trait]
pub(crate) trait Connection: Send {
    /// What stands for the markers of the shared statements.
    const DIALECT: Dialect;

    /// Returns the rows of a statement.
    async fn fetch(&mut self, query: Query<'_>) -> sqlx::Result<Vec<Row>>;

    /// Returns how many rows a statement changed.
    async fn execute(&mut self, query: Query<'_>) -> sqlx::Result<u64>;

    /// Inserts one row and returns its id.
    async fn insert(&mut self, query: Query<'_>) -> sqlx::Result<i64>;

    /// Inserts one row; `false` where its key is there already.
    async fn insert_unless_known(&mut self, query: Query<'_>) -> sqlx::Result<bool>;

    /// Inserts a fresh event for each entry, in their order, into an outbox; returns row ids with
    /// identities.
    async fn insert_copies(
        &mut self,
        query: Query<'_>,
        entries: &[Entry],
        into: &Outbox,
    ) -> Result<Vec<Entry>>;

    /// Appends an event.
    async fn append(&mut self, outbox: &Outbox, event: &NewEvent) -> Result<Appended, AppendError>;

    /// Appends events.
    async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError>;

    /// Checks that counts can be added to the rows of a table.
    async fn check_table(&mut self, target: &TableTarget) -> Result<()>;

    /// Adds the counts of a batch to the rows of a table. `Some`: why they do not fit.
    async fn add_counts(&mut self, target: &TableTarget, batch: &Batch) -> Result<Option<String>>;
}

/// A store that operator work runs on.
#[async_trait]
pub(crate) trait SqlStore: Send + Sync + 'static {
    /// The database.
    type Db: sqlx::Database<Connection: Connection>;

    /// Which family it is.
    const KIND: StoreKind;
    /// How a transaction that writes begins.
    const BEGIN: &'static str;
    /// How a transaction begins that cleans up the inbox.
    const BEGIN_CLEAN_UP: &'static str = Self::BEGIN;
    /// Rows that one transaction writes at most.
    const ROWS_MAX: u32 = u32::MAX;
    /// Entries that one step of a job acts on at most.
    const ENTRIES_MAX: u32 = Self::ROWS_MAX;
    /// Time between two transactions of a clean-up, in which others get to write.
    const REST: Duration = Duration::ZERO;
    /// Writers append entries to the ledgers of consumers, which are folded later.
    const APPENDS_TO_LEDGER: bool = true;

    /// Returns the pool for statements that only read.
    fn readers(&self) -> &Pool<Self::Db>;

    /// Returns the pool for statements that write.
    fn writers(&self) -> &Pool<Self::Db>;

    /// Returns what is remembered of the oldest rows, where a look from the beginning may be slow.
    fn oldest_rows(&self) -> Option<&OldestRows> {
        None
    }

    /// Sorts an error by what the caller can do about it.
    fn explain(&self, error: sqlx::Error) -> StoreError {
        error.into()
    }

    /// Begins a transaction that only the holder of the lease gets; otherwise
    /// [`StoreError::LeaseLost`].
    async fn begin_for(&self, lease: &Lease) -> Result<Transaction<'static, Self::Db>>;

    /// Removes locks unused for a day, where they are rows.
    async fn clean_locks(&self, _chunk: u32) -> Result<u64> {
        Ok(0)
    }

    /// Returns the rows of a statement that reads whole tables.
    async fn fetch_whole(&self, query: Query<'_>) -> Result<Vec<Row>>
    where
        Self: Sized,
    {
        self.fetch(query).await
    }

    /// Begins a transaction. It is rolled back where it is dropped.
    async fn session(&self) -> Result<Session<'_, Self>>
    where
        Self: Sized,
    {
        self.begin_session(Self::BEGIN).await
    }

    /// Begins a transaction by one of the statements of this trait.
    async fn begin_session(&self, statement: &'static str) -> Result<Session<'_, Self>>
    where
        Self: Sized,
    {
        let begun = begin(self.writers(), statement).await;
        Ok(Session { store: self, tx: begun.map_err(|error| self.explain(error))? })
    }

    /// As [`SqlStore::session`], for the holder of the lease.
    async fn session_for(&self, lease: &Lease) -> Result<Session<'_, Self>>
    where
        Self: Sized,
    {
        Ok(Session { store: self, tx: self.begin_for(lease).await? })
    }

    /// Returns the rows of a statement that only reads.
    async fn fetch(&self, query: Query<'_>) -> Result<Vec<Row>>
    where
        Self: Sized,
    {
        let acquired = self.readers().acquire().await;
        let mut connection = acquired.map_err(|error| self.explain(error))?;
        connection.fetch(query).await.map_err(|error| self.explain(error))
    }

    /// Returns the only row of a statement that only reads.
    async fn fetch_one(&self, query: Query<'_>) -> Result<Row>
    where
        Self: Sized,
    {
        only(self.fetch(query).await?).ok_or_else(|| self.explain(sqlx::Error::RowNotFound))
    }

    /// Runs one statement in a transaction of its own; returns how many rows it changed.
    async fn execute(&self, query: Query<'_>) -> Result<u64>
    where
        Self: Sized,
    {
        let acquired = self.writers().acquire().await;
        let mut connection = acquired.map_err(|error| self.explain(error))?;
        connection.execute(query).await.map_err(|error| self.explain(error))
    }

    /// Leaves time for others to write.
    async fn rest(&self) {
        if !Self::REST.is_zero() {
            tokio::time::sleep(Self::REST).await;
        }
    }

    /// Adds to an error that has been sorted what the store knows of it.
    fn explain_again(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unavailable(cause)
            | StoreError::Busy(cause)
            | StoreError::Database(cause) => self.explain(cause),
            error => error,
        }
    }
}

/// A transaction of a store.
pub(crate) struct Session<'s, S: SqlStore> {
    store: &'s S,
    tx: Transaction<'static, S::Db>,
}

impl<S: SqlStore> Session<'_, S> {
    /// Returns the rows of a statement.
    pub(super) async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<Row>> {
        self.tx.fetch(query).await.map_err(|error| self.store.explain(error))
    }

    /// Returns the first row of a statement, if there is one.
    pub(super) async fn fetch_optional(&mut self, query: Query<'_>) -> Result<Option<Row>> {
        Ok(only(self.fetch(query).await?))
    }

    /// Returns the only row of a statement.
    pub(super) async fn fetch_one(&mut self, query: Query<'_>) -> Result<Row> {
        let found = self.fetch_optional(query).await?;
        found.ok_or_else(|| self.store.explain(sqlx::Error::RowNotFound))
    }

    /// Returns how many rows a statement changed.
    pub(super) async fn execute(&mut self, query: Query<'_>) -> Result<u64> {
        self.tx.execute(query).await.map_err(|error| self.store.explain(error))
    }

    /// See [`Connection::insert`].
    pub(super) async fn insert(&mut self, query: Query<'_>) -> Result<i64> {
        self.tx.insert(query).await.map_err(|error| self.store.explain(error))
    }

    /// See [`Connection::insert_unless_known`].
    pub(super) async fn insert_unless_known(&mut self, query: Query<'_>) -> Result<bool> {
        self.tx.insert_unless_known(query).await.map_err(|error| self.store.explain(error))
    }

    /// See [`Connection::insert_copies`].
    pub(super) async fn insert_copies(
        &mut self,
        query: Query<'_>,
        entries: &[Entry],
        into: &Outbox,
    ) -> Result<Vec<Entry>> {
        let inserted = self.tx.insert_copies(query, entries, into).await;
        inserted.map_err(|error| self.store.explain_again(error))
    }

    /// Appends an event.
    pub(super) async fn append(
        &mut self,
        outbox: &Outbox,
        event: &NewEvent,
    ) -> Result<Appended, AppendError> {
        self.tx.append(outbox, event).await
    }

    /// Appends events.
    pub(super) async fn append_all(
        &mut self,
        outbox: &Outbox,
        events: &[NewEvent],
    ) -> Result<Vec<Appended>, AppendError> {
        self.tx.append_all(outbox, events).await
    }

    /// See [`Connection::add_counts`].
    pub(super) async fn add_counts(
        &mut self,
        target: &TableTarget,
        batch: &Batch,
    ) -> Result<Option<String>> {
        let added = self.tx.add_counts(target, batch).await;
        added.map_err(|error| self.store.explain_again(error))
    }

    /// See [`audit`].
    pub(super) async fn audit(
        &mut self,
        operator: &str,
        action: &str,
        outbox: &str,
        target: impl Display + Send,
        detail: &str,
    ) -> Result<()> {
        let written = audit(&mut *self.tx, operator, action, outbox, target, detail).await;
        written.map_err(|error| self.store.explain(error))
    }

    /// Sorts an error by what the caller can do about it.
    pub(super) fn explain(&self, error: sqlx::Error) -> StoreError {
        self.store.explain(error)
    }

    /// Commits.
    pub(super) async fn commit(self) -> Result<()> {
        self.tx.commit().await.map_err(|error| self.store.explain(error))
    }

    /// Rolls back, and waits for it. A transaction that is only dropped keeps its locks a little
    /// longer.
    pub(super) async fn rollback(self) -> Result<()> {
        self.tx.rollback().await.map_err(|error| self.store.explain(error))
    }
}

fn only(rows: Vec<Row>) -> Option<Row> {
    rows.into_iter().next()
}
