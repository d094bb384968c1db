//! What the owner of lanes keeps in memory at most.

use std::time::Duration;

/// Limits of claim mode `lanes`. The defaults fit every load that was measured; smaller ones make
/// rare states common, which the simulation lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Rows that are queued or in flight; more are not read.
    pub load_rows_max: usize,
    /// The same after an idle time; each delivered row makes room for two more. Of a key whose first
    /// event fails, all that was read of it is read in vain.
    pub load_rows_first: usize,
    /// Rows that wait for their time; with more, no new ones are read.
    pub waiting_rows_max: usize,
    /// Rows of one read at least, whatever the batch: reading 100 at a time costs more than they do.
    pub read_rows_min: u32,
    /// Waiting rows and keys per read.
    pub again_max: usize,
    /// Rows passed over for a key after which the store is told to leave them out.
    pub hide_after: u64,
    /// Keys that the store leaves out at most: they go with every read.
    pub hidden_max: usize,
    /// Everything is read from the beginning this often: a row that was changed by hand, say.
    pub sweep_every: Duration,
}

impl Default for LaneLimits {
    fn default() -> Self {
        Self {
            load_rows_max: 20_000,
            load_rows_first: 500,
            waiting_rows_max: 250_000,
            read_rows_min: 2_000,
            again_max: 500,
            hide_after: 64,
            hidden_max: 1_000,
            sweep_every: Duration::from_secs(60),
        }
    }
}
