//! The store: what a database does for Postrider, as one trait per user.
//!
//! | trait | used by | purpose |
//! |---|---|---|
//! | [`Schema`] | `migrate`, start-up | tables, versions |
//! | [`Store`] | the relay's loop | leases, claim, settle, release |
//! | [`Maintenance`] | one relay at a time | recovery, clean-up, folding of the ledger |
//! | [`OperatorStore`] | operators: CLI, REST, page | ledger, lists, dead letters, audit |
//! | [`Inboxes`] | operators, maintenance | ledger, clean-up and dead letters of consumers |
//! | [`Jobs`] | operators, and who runs the jobs | bulk actions, step by step |
//! | [`Pauses`] | operators, and every heartbeat | what is paused |
//! | [`Inspect`] | the monitor, `doctor` | bounded looks at tables and server |
//! | [`Batches`] | workers of a buffer | batches, saved exactly once |
//! | [`Adopt`] | `migrate`, `outbox adopt`, clean-up | tables of other programs |
//!
//! Every implementation follows these rules, which the conformance suite of `postrider-testkit`
//! checks:
//!
//! - **One call per batch.** A call is one transaction: it happens as a whole or not at all.
//! - **Repeatable.** A call whose result was lost may be repeated; it changes nothing twice.
//!   `version` (per row) and `epoch` (per relay) ensure this.
//! - **The database's clock** is the only clock in the tables. Callers pass durations.
//! - **Thread safety.** All methods take `&self` and may run concurrently. A [`Cursor`] belongs to
//!   one caller.

mod adopt;
mod batches;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod begin;
mod claim;
mod dead_letter;
mod grouping;
mod horizon;
mod inboxes;
mod inspect;
pub(crate) mod job_step;
mod jobs;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod lane_search;
mod lanes;
mod lease;
mod ledger;
mod listing;
mod maintenance;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod oldest;
mod operator;
mod pauses;
mod schema;
pub(crate) mod search;
mod serving;
mod settle;
pub(crate) mod time;

pub use adopt::{Adopt, AdoptCursor, AdoptImport, AdoptStep};
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use adopt::{adoption_findings, shared_identities};
pub use batches::{
    Application, BATCHES_KEPT, Batch, BatchEntry, BatchLedger, BatchState, BatchTarget, Batches,
    EventTarget, TableTarget,
};
pub(crate) use batches::{IMPORT_ACTION, importable, is_refused};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) use begin::begin;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) use begin::end;
pub use claim::{ClaimLimit, Claimed, Cursor};
pub use dead_letter::{
    DeadLetter, DeadLetterGroup, DeadLetterGroups, DeadReason, DlqFilter, Edit, GROUP_HOURS_MAX,
    GROUP_TYPES_MAX, ImportEntry, Imported, LetterBrief, ORIGINAL_HEADER, OldestLetters, Resent,
};
pub(crate) use dead_letter::{edited, resent};
pub(crate) use grouping::{Bunch, Grouped, groups};
pub use horizon::Horizon;
pub use inboxes::{ConsumerLedger, InboxCleaned, InboxLetter, Inboxes};
pub(crate) use inboxes::{StoredLetter, leaving, open_letter};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) use inspect::Part;
pub use inspect::{AtLeast, Composition, Finding, Inspect, StateCount, Verdict};
pub(crate) use inspect::{Made, major_minor, missing_parts, parts};
pub use jobs::{
    CANARY_MAX, Canary, Job, JobFilter, JobState, JobWork, Jobs, NewJob, REPLAY_HEADER,
    REQUEST_KEY_MAX,
};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) use lane_search::up_to_limit;
pub use lanes::{
    BlockedKey, ClaimMode, Key, LANES, Lane, LaneOwner, LaneRead, LaneRow, LaneSet, Lanes, Mode,
    Share,
};
pub(crate) use lanes::{FoundLane, choose_lanes, mode_of};
pub use lease::{Lease, RelayIdentity, RelayPulse};
pub use ledger::{LEDGER_BY_MINUTE, LedgerLine, LedgerWindow, Statistics, TypeStatistics};
pub(crate) use ledger::{LEDGER_SUMMED_AFTER, windows_from_lines};
pub use listing::{COUNT_MAX, CountLimit, Counted, Listed, Page, SEARCH_BUDGET};
pub(crate) use maintenance::fingerprints;
pub use maintenance::{
    CLOSED_LETTERS_KEPT, Cleaned, Maintenance, MovedLetter, Recovery, Retention,
};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) use oldest::{Oldest, OldestRows};
pub use operator::{Attempt, AuditEntry, AuditFilter, EventFilter, Identified, OperatorStore};
pub(crate) use operator::{parse_stored, refuse_acting_on, refuse_reopening};
pub use pauses::{Pause, PauseKind, Pauses};
pub use schema::{Schema, SchemaState, ServerFacts, versions};
pub(crate) use schema::{leave_newer_tables, schema_verdict};
pub use serving::{Ages, DownDestination, Serving, Traffic};
pub(crate) use serving::{parse_serving, serving_text};
pub(crate) use settle::check_copies;
pub use settle::{BRANCHES_MAX, Death, Deferral, Delivery, Failure, OnSuccess, Settled};

use async_trait::async_trait;
use postrider::Outbox;
use tokio::sync::mpsc;

use crate::error::StoreError;
use crate::event::Event;

/// Result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// From this many crashes on, an event is a suspect: it is claimed and delivered alone. Statements
/// and indexes have the number too, because the condition of an index cannot be a parameter; a test
/// compares them.
pub const SUSPECT_CRASHES: i32 = 2;

/// The SQL families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// PostgreSQL 14 or newer (13 has no `CREATE OR REPLACE TRIGGER`).
    Postgres,
    /// MySQL 8.0.16 or newer, MariaDB 10.6 or newer.
    Mysql,
    /// SQLite 3.35 or newer.
    Sqlite,
}

impl StoreKind {
    /// Returns the name in messages and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }
}

/// The capabilities of a store. The conformance suite reads them instead of skipping silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Two transactions may append at the same time, so that ids can commit out of order.
    pub concurrent_writers: bool,
    /// A plain `INSERT` with a repeated `request_id` is skipped; otherwise it fails (1062).
    pub skips_duplicates: bool,
    /// A repeat that another transaction committed in the meantime fails with 40001 under
    /// REPEATABLE READ and above.
    pub serialization_failures: bool,
    /// An insert can notify other processes.
    pub notifies: bool,
    /// Several relays can share an outbox in lanes; otherwise one relay owns all of them.
    pub shares_lanes: bool,
}

/// All traits that a database implements.
pub trait Database:
    Schema
    + Store
    + Lanes
    + Maintenance
    + OperatorStore
    + Inboxes
    + Jobs
    + Pauses
    + Inspect
    + Batches
    + Adopt
{
}
impl<T> Database for T where
    T: Schema
        + Store
        + Lanes
        + Maintenance
        + OperatorStore
        + Inboxes
        + Jobs
        + Pauses
        + Inspect
        + Batches
        + Adopt
{
}

/// The operations of the relay's main loop.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the SQL family.
    fn kind(&self) -> StoreKind;

    /// Returns the capabilities.
    fn capabilities(&self) -> Capabilities;

    /// Registers a relay. It owns the rows that it claims until its lease is lost.
    async fn register(&self, relay: &RelayIdentity) -> Result<Lease>;

    /// Shows that the relay lives and what it works on, and returns the pulses of all relays,
    /// including this one. Fails with [`StoreError::LeaseLost`] if another relay declared it dead.
    async fn heartbeat(&self, lease: &Lease, serving: &[Serving]) -> Result<Vec<RelayPulse>>;

    /// Lists the relays, without a lease.
    async fn relays(&self) -> Result<Vec<RelayPulse>>;

    /// Declares a relay dead, provided that its pulse is still the one observed. Waits for running
    /// settles of that relay; afterwards none of its writes succeed. Returns whether it is fenced
    /// now.
    async fn fence(&self, pulse: &RelayPulse) -> Result<bool>;

    /// Removes the relay from the list. Only for a relay that holds no rows any more.
    async fn retire(&self, lease: &Lease) -> Result<()>;

    /// Claims due events for the relay: by ascending id, within the limit, without events that
    /// another relay holds, and without suspects. Fails with [`StoreError::HistoryChanged`], with
    /// nothing claimed, if ids went back: what the relay remembers of this outbox may be other
    /// events by now.
    async fn claim(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<Claimed>;

    /// Claims one suspect: an event that a relay held at two or more crashes. The caller delivers
    /// it with nothing else in flight. Fewest crashes first, so that innocent events get through.
    async fn claim_suspect(&self, outbox: &Outbox, lease: &Lease) -> Result<Option<Event>>;

    /// Returns whether a suspect is due.
    async fn has_suspect(&self, outbox: &Outbox) -> Result<bool>;

    /// Removes delivered events from the outbox, to the archive if `on_success` says so, and counts
    /// them in the ledger.
    async fn settle_delivered(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        on_success: OnSuccess,
    ) -> Result<Settled>;

    /// Fan-out: settles events as delivered and, in the same transaction, copies each into those
    /// `children` that its branches name, in id order and with its event id.
    async fn fan_out(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        on_success: OnSuccess,
    ) -> Result<Settled>;

    /// Spends an attempt of each event and schedules the next one (`FAILED`).
    async fn settle_failed(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        failed: &[Failure],
    ) -> Result<Settled>;

    /// Moves events to the dead letters and counts them in the ledger, in one transaction.
    async fn settle_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled>;

    /// The second safety net: the dead-letter table could not take the event, and the backup file
    /// has it. The row stays, marked `DEAD_LETTER` with its reason, for maintenance to move later.
    async fn mark_dead(&self, outbox: &Outbox, lease: &Lease, dead: &[Death]) -> Result<Settled>;

    /// Releases events (`PENDING`) without spending an attempt.
    async fn release(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        deferred: &[Deferral],
    ) -> Result<Settled>;

    /// Releases rows that this relay holds in the table but that are not in `in_flight`: rows of a
    /// claim whose result was lost. The caller must not claim while this runs.
    async fn release_lost(&self, outbox: &Outbox, lease: &Lease, in_flight: &[i64]) -> Result<u64>;

    /// Returns a stream of the names of tables that other processes append to. These are hints,
    /// never the only way to learn of an event. Returns `None` if the store does not support them.
    /// Dropping the receiver ends the stream.
    async fn hints(&self, outboxes: &[Outbox]) -> Result<Option<mpsc::Receiver<String>>>;
}
