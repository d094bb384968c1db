//! A broker that is killed while a relay drains an outbox: nothing lost, no order broken, no event
//! blamed.

use postrider::store::ClaimMode;
use postrider_testkit::sinks::{
    Destination, KafkaDestination, NatsDestination, RabbitDestination, RedisDestination,
};

use crate::drain::Drain;

const EVENTS: usize = 4_000;

macro_rules! killed {
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
            }
        )*
    };
}

killed!(
    kafka: KafkaDestination,
    rabbitmq: RabbitDestination,
    nats: NatsDestination,
    redis: RedisDestination,
);

async fn killed_during_a_drain<D: Destination>(test: &str, mode: ClaimMode) {
    let Some(destination) = D::private(test).await else { return };
    // Held back, so that the broker dies with most of them still to come.
    let drain = Drain::start(test, mode, destination.sink(), Some(800.0)).await;
    let Some(mut drain) = drain else { return };
    drain.append(EVENTS).await;
    drain.until_left(EVENTS - 500).await;
    destination.kill().await;
    assert!(drain.left().await > 0, "it was killed in the middle");
    destination.start().await;
    drain.until_left(0).await;
    drain.ends_with(&destination.arrived().await).await;
}
