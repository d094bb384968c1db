//! The leader of a partition changes while a relay delivers to it.

use postrider_store::ClaimMode;
use postrider_testkit::{
    eventually,
    sinks::{Destination, KafkaDestination},
};

use crate::drain::Drain;

/// Events per change, slowed down to `PER_SECOND`, so that the change occurs while the relay works.
const EVENTS: usize = 4_000;
/// Events after each change.
const BEHIND: usize = 500;
const PER_SECOND: f64 = 800.0;
/// Who leads the partitions with both brokers, and without `node-2`.
const BOTH: [i32; 3] = [2, 2, 1];
const FIRST: [i32; 3] = [1, 1, 1];

/// The old leader shuts down, dies, or hangs and still believes to be the leader when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_during_a_drain_in_lanes() {
    let test = "kafka_leaders::lanes";
    let Some(topic) = KafkaDestination::replicated(test).await else { return };
    let drain = Drain::start(test, ClaimMode::Lanes, topic.sink(), Some(PER_SECOND)).await;
    let Some(mut drain) = drain else { return };
    for (lost, returns) in [("stop", "start"), ("kill", "start"), ("freeze", "thaw")] {
        topic.until_led_by(BOTH).await;
        drain.append(EVENTS).await;
        drain.until_left(EVENTS - 200).await;
        topic.to_broker("node-2", lost).await;
        let left = drain.left().await;
        assert!(left > 0, "{lost}: it was lost in the middle");
        topic.until_led_by(FIRST).await;
        // All partitions, including those that were led by the lost broker.
        drain.until_left(0).await;
        match returns {
            "start" => topic.start().await,
            _ => topic.to_broker("node-2", returns).await,
        }
        topic.until_led_by(BOTH).await;
        // Leaders also move back during deliveries.
        drain.append(BEHIND).await;
        drain.until_left(0).await;
    }
    // A new leader exposes the end of a partition only when it knows that the others have it.
    let arrived = eventually("everything can be read", async || {
        Some(topic.arrived().await).filter(|arrived| arrived.len() >= 3 * (EVENTS + BEHIND))
    });
    drain.ends_with(&arrived.await).await;
}
