//! Memory limits of the owner of lanes.

use std::time::Duration;

/// Limits of claim mode `lanes`. The defaults suit every load that was measured; smaller ones make
/// rare states common, which the simulation relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLimits {
    /// Maximum number of rows queued or in flight; beyond it, no more are read.
    pub load_rows_max: usize,
    /// The same after an idle time; each delivered row makes room for two more. If the first event
    /// of a key fails, everything that was read of the key was read in vain.
    pub load_rows_first: usize,
    /// Maximum number of rows that wait until they are due; beyond it, no new rows are read.
    pub waiting_rows_max: usize,
    /// Minimum number of rows per read, whatever the batch size: reading 100 at a time costs more
    /// than delivering them.
    pub read_rows_min: u32,
    /// Maximum number of waiting rows, or of keys, per read.
    pub again_max: usize,
    /// Number of rows passed over for a key after which reads leave its rows out.
    pub hide_after: u64,
    /// Maximum number of keys that the store leaves out: they are sent with every read.
    pub hidden_max: usize,
    /// Interval at which everything is read from the beginning, to find rows that were changed by
    /// hand, for example.
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
