//! Claim mode `lanes`: this relay owns lanes of the outbox, and no other relay touches their rows.
//!
//! ```text
//! reader ── rows in id order ──► board ──► workers: verify → deliver → decide
//!    ▲                             ▲                      │
//!    └── heads due, keys to catch up ── settling ◄────────┘
//! ```
//!
//! A key always goes to the same worker, and a worker has one batch in flight, so events of a key
//! are sent one after the other. Nothing is written before an event is settled: what is in flight
//! is in memory only, and a relay that dies leaves its rows unchanged.

mod board;
mod ownership;
mod reader;
mod session;

use std::sync::Arc;

use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use crate::config::OutboxConfig;
use crate::delivery::pipeline::Pipeline;
use crate::delivery::settle::Settler;
use crate::delivery::trouble::Step;
use crate::lease::LeaseKeeper;
use crate::waker::Waker;
use session::Session;

pub(crate) struct Lanes {
    pub(crate) config: OutboxConfig,
    pub(crate) pipeline: Pipeline,
    pub(crate) settler: Settler,
    pub(crate) lease_keeper: Arc<LeaseKeeper>,
    pub(crate) waker: Waker,
    /// Batches hold it shared. A suspect holds it exclusively, across all outboxes of the process.
    pub(crate) alone: Arc<RwLock<()>>,
}

impl Lanes {
    /// Runs until stopped, and returns once everything in flight is settled or given up. Returns
    /// whether all lanes were released.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> bool {
        let mut clean = true;
        while !stop.is_cancelled() {
            let Some(held) = stop.run_until_cancelled(self.lease_keeper.held()).await else {
                break;
            };
            // State is kept per lease: under another lease, the lanes may belong to other relays.
            clean = Session::new(Arc::clone(&self), held).run(&stop).await;
        }
        // The rows that waited in memory are gone, and so is the lack of room.
        self.settler.trouble.succeeded(Step::Room);
        clean
    }
}
