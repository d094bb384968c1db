//! From a claimed batch to its settlement: verify, hold back, deliver, decide, settle; and the
//! safety net for dead letters.

pub mod backup;
pub(crate) mod gate;
pub(crate) mod pipeline;
pub(crate) mod safety_net;
pub(crate) mod settle;
pub(crate) mod trace;
pub(crate) mod trouble;
