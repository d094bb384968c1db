//! The suite that every sink passes, on real servers.
//!
//! A sink is examined through a [`Destination`]: a place on a server (a topic, a queue, a path)
//! that a test owns, can read back, and whose server it may stop, kill and start. What a sink or
//! its server cannot do is declared in [`Capabilities`], and the case then asserts the declared
//! alternative.

#[cfg(feature = "http")]
mod chat;
pub mod deliveries;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
pub mod outages;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis")]
mod redis;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider::Event;
use postrider_relay::Sink;

#[cfg(feature = "http")]
pub use chat::ChatDestination;
#[cfg(feature = "http")]
pub use http::HttpDestination;
#[cfg(feature = "kafka")]
pub use kafka::KafkaDestination;
#[cfg(feature = "nats")]
pub use nats::NatsDestination;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::{RabbitDestination, RabbitQueue};
#[cfg(feature = "redis")]
pub use redis::{RedisClusterDestination, RedisDestination, RedisStreams};
pub use steps::{deliver, deliver_all, events_of_keys, settings_name};

/// A message as it was found at its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// `postrider-event-id`.
    pub event_id: String,
    /// Headers by their names in lower case, without what the transport adds by itself.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub payload: String,
}

/// What differs between sinks.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Bytes of a payload that the destination takes.
    pub payload_bytes_max: usize,
    /// The server recognises an event that it has already.
    pub recognises_repeats: bool,
}

/// A place that one test delivers to.
#[async_trait(?Send)]
pub trait Destination: Send + Sync + Sized + 'static {
    /// What the suite may expect.
    const CAPABILITIES: Capabilities;

    /// A fresh place on the shared server. `None`, noted as skipped, where there is none.
    async fn shared(test: &str) -> Option<Self>;

    /// A fresh place on a server of its own, which the test may stop and kill.
    async fn private(test: &str) -> Option<Self>;

    /// A sink that delivers here; its name is [`settings_name`].
    fn sink(&self) -> Arc<dyn Sink>;

    /// The same event, changed so that the server refuses it for what it is.
    fn refused(&self, event: Event) -> Event;

    /// The same event with a part that is larger than the server takes. `None` where every event
    /// fits that an outbox may hold.
    fn oversize(&self, event: Event) -> Option<Event>;

    /// Everything that is here, the messages of a key in the order of their arrival.
    async fn arrived(&self) -> Vec<Arrived>;

    /// Stops the private server in good order.
    async fn stop(&self);

    /// Kills the private server.
    async fn kill(&self);

    /// Starts the private server again, with what it had.
    async fn start(&self);

    /// The private server takes connections and answers nothing from now on.
    async fn freeze(&self);

    /// The private server goes on where it was.
    async fn thaw(&self);

    /// Removes the place from the shared server, at the end of a test that passed.
    async fn remove(self);
}

/// One test per case for a sink: `sink_conformance!(kafka: KafkaDestination)`.
#[macro_export]
macro_rules! sink_conformance {
    ($sink:ident: $destination:ty) => {
        mod $sink {
            $crate::sink_cases!($destination, deliveries, shared: [
                a_batch_arrives_and_every_event_is_acknowledged,
                events_of_a_key_arrive_in_order,
                calls_at_the_same_time_do_not_disturb_each_other,
                identity_context_and_own_headers_arrive_intact,
                an_event_cannot_forge_its_identity,
                payloads_of_any_text_arrive_unchanged,
                a_payload_of_the_largest_size_arrives,
                an_event_without_usable_headers_is_rejected_alone,
                a_refused_event_is_rejected_and_the_others_arrive,
                a_part_that_is_too_large_is_refused_and_the_others_arrive,
                behind_a_refused_event_its_key_waits_and_other_keys_go_on,
                past_the_deadline_nothing_is_sent,
                a_repeated_event_arrives_as_declared,
                what_was_acknowledged_is_there_after_closing,
                a_check_passes_where_everything_is_in_order,
            ]);
            $crate::sink_cases!($destination, outages, private: [
                a_server_that_is_down_at_the_start_costs_nothing_but_time,
                a_check_names_the_sink_whose_server_is_down,
                a_server_stopped_in_the_middle_loses_nothing_and_keeps_order,
                a_server_killed_in_the_middle_loses_nothing_and_keeps_order,
                a_call_dropped_in_an_outage_does_not_disturb_the_next_one,
            ]);
        }
    };
}

/// One test per case of a theme.
#[doc(hidden)]
#[macro_export]
macro_rules! sink_cases {
    ($destination:ty, $theme:ident, $server:ident: [$($case:ident),* $(,)?]) => {
        mod $theme {
            use $crate::sinks::Destination as _;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    if let Some(destination) = <$destination>::$server(name).await {
                        $crate::sinks::$theme::$case(&destination).await;
                        destination.remove().await;
                    }
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is in no list would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("mod.rs");
        for source in [include_str!("deliveries.rs"), include_str!("outages.rs")] {
            let cases = source.lines().filter_map(|line| {
                line.strip_prefix("pub async fn ")?
                    .split_once("<D: Destination>")
                    .map(|(case, _)| case)
            });
            let mut found = 0;
            for case in cases {
                assert!(list.contains(&format!(" {case},\n")), "{case} is in no list");
                found += 1;
            }
            assert!(found > 0);
        }
    }
}
