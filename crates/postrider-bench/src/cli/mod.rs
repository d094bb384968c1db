//! The command line of `bench` and `chaos`.

mod bench;
mod chaos;
mod shared;

pub(crate) use bench::{
    ApiBenchArgs, AppendBenchArgs, BacklogArgs, BlockedKeysArgs, BufferBenchArgs, BulkRetryArgs,
    DestinationsArgs, DrainArgs, GatewayBenchArgs, HeldXminArgs, InboxBenchArgs, LatencyArgs,
    LoadArgs, OutageArgs, PageBenchArgs, ProducersArgs, ScaleArgs, TakeoverArgs,
};
pub use bench::{BenchCommand, BenchRelayArgs};
pub use chaos::{ChaosApiArgs, ChaosCommand, ChaosRelayArgs};
pub(crate) use chaos::{N19Args, StormArgs, StormSink};
pub(crate) use shared::{EventArgs, OutputArgs, RelayArgs, SinkArgs, SinkKind};
