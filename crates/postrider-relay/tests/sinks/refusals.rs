//! Events that a broker refuses because of their content, among others that it accepts: exactly
//! these become dead letters, and exactly the others are at the broker.

use postrider_store::ClaimMode;
use postrider_testkit::{
    relay::held_event,
    sinks::{
        ChatDestination, Destination, HttpDestination, KafkaDestination, NatsDestination,
        RabbitDestination, RedisClusterDestination, RedisDestination,
    },
};

use crate::drain::Drain;

/// Number of refused events, and of events before and after each.
const REFUSED: usize = 5;
const BETWEEN: usize = 60;

macro_rules! refusals {
    ($($sink:ident: $destination:ty),* $(,)?) => {
        $(
            mod $sink {
                use super::*;

                #[tokio::test(flavor = "multi_thread")]
                async fn only_what_is_refused_dies() {
                    for mode in [ClaimMode::Rows, ClaimMode::Lanes] {
                        only_what_is_refused_dies_in::<$destination>(module_path!(), mode).await;
                    }
                }
            }
        )*
    };
}

refusals!(
    kafka: KafkaDestination,
    rabbitmq: RabbitDestination,
    nats: NatsDestination,
    redis: RedisDestination,
    redis_cluster: RedisClusterDestination,
    http: HttpDestination,
    chat: ChatDestination,
);

async fn only_what_is_refused_dies_in<D: Destination>(test: &str, mode: ClaimMode) {
    let Some(destination) = D::shared(test).await else { return };
    let Some(mut drain) = Drain::start(test, mode, destination.sink(), None).await else { return };
    let refused = destination.refused(held_event(1));
    for _ in 0..REFUSED {
        drain.append(BETWEEN).await;
        drain.append_refused(&refused.event_type, &refused.payload).await;
    }
    drain.append(BETWEEN).await;
    drain.until_left(0).await;
    drain.ends_with(&destination.arrived().await).await;
    destination.remove().await;
}
