//! A broker that is killed or hangs while a relay drains an outbox: nothing is lost, order is kept,
//! and no event is charged.

use postrider_store::ClaimMode;
use postrider_testkit::sinks::{
    ChatDestination, Destination, HttpDestination, KafkaDestination, NatsDestination,
    RabbitDestination, RedisClusterDestination, RedisDestination,
};

use crate::drain::Drain;

const EVENTS: usize = 4_000;
/// Slows the relay down, so that trouble occurs while most events are still to come.
const PER_SECOND: f64 = 800.0;

macro_rules! outages {
    ($($sink:ident: $destination:ty),* $(,)?) => {
        $(
            mod $sink {
                use super::*;

                #[tokio::test(flavor = "multi_thread")]
                async fn killed_during_a_drain_in_lanes() {
                    killed_during_a_drain::<$destination>(module_path!(), ClaimMode::Lanes).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn killed_during_a_drain_in_rows() {
                    killed_during_a_drain::<$destination>(module_path!(), ClaimMode::Rows).await;
                }

                #[tokio::test(flavor = "multi_thread")]
                async fn frozen_during_a_drain_in_lanes() {
                    frozen_during_a_drain::<$destination>(module_path!(), ClaimMode::Lanes).await;
                }
            }
        )*
    };
}

outages!(
    kafka: KafkaDestination,
    rabbitmq: RabbitDestination,
    nats: NatsDestination,
    redis: RedisDestination,
    redis_cluster: RedisClusterDestination,
    http: HttpDestination,
    chat: ChatDestination,
);

async fn killed_during_a_drain<D: Destination>(test: &str, mode: ClaimMode) {
    let Some(destination) = D::private(test).await else { return };
    let drain = Drain::start(test, mode, destination.sink(), Some(PER_SECOND)).await;
    let Some(mut drain) = drain else { return };
    drain.append(EVENTS).await;
    drain.until_left(EVENTS - 500).await;
    destination.kill().await;
    assert!(drain.left().await > 0, "it was killed in the middle");
    destination.start().await;
    drain.until_left(0).await;
    drain.ends_with(&destination.arrived().await).await;
}

/// Connections stay open, and what was sent may still be read when the broker continues.
async fn frozen_during_a_drain<D: Destination>(test: &str, mode: ClaimMode) {
    let Some(destination) = D::private(test).await else { return };
    let drain = Drain::start(test, mode, destination.sink(), Some(PER_SECOND)).await;
    let Some(mut drain) = drain else { return };
    drain.append(EVENTS).await;
    drain.until_left(EVENTS - 500).await;
    destination.freeze().await;
    // With any words: an event was given up.
    drain.until_refused("").await;
    assert!(drain.left().await > 0, "it hung in the middle");
    destination.thaw().await;
    drain.until_left(0).await;
    drain.ends_with(&destination.arrived().await).await;
}
