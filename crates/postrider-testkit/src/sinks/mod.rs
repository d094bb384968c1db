//! The suite that every sink passes, with real servers.
//!
//! A sink is tested through a [`Destination`]: a topic, queue or path on a server that a test owns,
//! can read back, and whose server it may stop, kill and start. [`Capabilities`] declare what a
//! sink or its server cannot do, and the case then asserts the declared alternative.

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
use postrider_relay::Sink;
use postrider_store::Event;

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

/// A message as found at its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// `postrider-event-id`.
    pub event_id: String,
    /// Headers by lower-case name, without those that the transport adds by itself.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub payload: String,
}

/// The differences between sinks.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// Maximum size of a payload that the destination accepts, in bytes.
    pub payload_bytes_max: usize,
    /// Whether the server detects an event that it already has.
    pub recognises_repeats: bool,
}

/// A destination for one test.
#[async_trait(?Send)]
pub trait Destination: Send + Sync + Sized + 'static {
    /// The capabilities that the suite may rely on.
    const CAPABILITIES: Capabilities;

    /// Creates a destination on the shared server. `None`, noted as skipped, if there is none.
    async fn shared(test: &str) -> Option<Self>;

    /// Creates a destination on a private server, which the test may stop and kill.
    async fn private(test: &str) -> Option<Self>;

    /// Returns a sink that delivers here; its name is [`settings_name`].
    fn sink(&self) -> Arc<dyn Sink>;

    /// Returns the same event, changed so that the server refuses it because of its content.
    fn refused(&self, event: Event) -> Event;

    /// Returns the same event with a part larger than the server accepts. `None` if the server
    /// accepts every event that an outbox can hold.
    fn oversize(&self, event: Event) -> Option<Event>;

    /// Returns all messages, those of a key in the order of their arrival.
    async fn arrived(&self) -> Vec<Arrived>;

    /// Stops the private server normally.
    async fn stop(&self);

    /// Kills the private server.
    async fn kill(&self);

    /// Starts the private server again, with its data.
    async fn start(&self);

    /// Makes the private server accept connections without answering.
    async fn freeze(&self);

    /// Lets the private server continue.
    async fn thaw(&self);

    /// Removes the destination from the shared server, at the end of a test that passed.
    async fn remove(self);
}

/// Generates one test per case for a sink: `sink_conformance!(kafka: KafkaDestination)`.
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

/// Generates one test per case of a theme.
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
    /// A case that is missing from the lists would never run.
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
