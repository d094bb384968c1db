//! What runs: one relay process, one supervisor per outbox, the two claim modes, and the work that
//! only the leader does.

mod auto_retry;
mod jobs;
mod lanes;
mod maintenance;
mod relay;
mod rows;
mod shares;
mod supervisor;

pub use relay::Relay;
