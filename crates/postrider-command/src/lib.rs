//! What the commands of the binary `postrider` share, in `postrider-server` and `postrider-bench`:
//! their errors and exit codes, what they print, how they connect and how they are stopped.

mod failure;
mod metrics;
pub mod output;
mod signals;
mod store;
mod time;

pub use failure::Failure;
pub use metrics::install_metrics;
pub use signals::stop_on_signal;
pub use store::{connect, without_password};
pub use time::parse_time;
