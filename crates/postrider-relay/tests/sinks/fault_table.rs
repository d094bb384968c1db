//! Which fault of a server is tested with which sink, by which test, and which faults a server
//! cannot have.
//!
//! A missing sink, or a test that is named here and does not exist, makes a test fail; a fault that
//! is left out does not compile. Each of these tests reads the broker back and compares it with the
//! ledger: appended = delivered + dead + pending.

use std::collections::BTreeSet;
use std::process::Command;

/// How a fault is covered for a sink.
enum Cell {
    /// These tests cause it.
    Tested(&'static [&'static str]),
    /// The server has no such fault, for this reason.
    Impossible(&'static str),
}

use Cell::{Impossible, Tested};

/// The faults.
struct Faults {
    /// One part of the server fails, the others do not.
    partial_outage: Cell,
    /// The server refuses single messages: nacks, returns, 4xx.
    refused: Cell,
    /// A queue, a stream or the memory is full.
    full: Cell,
    /// A part of a message is larger than the server accepts.
    oversize: Cell,
    /// The server dies during a delivery.
    killed: Cell,
    /// The server accepts connections and does not answer.
    frozen: Cell,
}

const TABLE: [(&str, Faults); 7] = [
    (
        "kafka",
        Faults {
            partial_outage: Tested(&[
                "partial_outage::a_kafka_topic_without_rights_in_rows",
                "partial_outage::a_kafka_topic_without_rights_in_lanes",
                "kafka_leaders::a_leader_that_changes_during_a_drain_in_lanes",
            ]),
            refused: Tested(&["refusals::kafka::only_what_is_refused_dies"]),
            full: Impossible(
                "a topic drops its oldest messages instead of refusing new ones; a broker whose \
                 disk is full stops, as one that is killed",
            ),
            oversize: Tested(&[
                "broker_changes::a_kafka_message_that_only_the_broker_finds_too_large",
                "kafka::deliveries::a_part_that_is_too_large_is_refused_and_the_others_arrive",
            ]),
            killed: Tested(&[
                "relay_outage::kafka::killed_during_a_drain_in_rows",
                "relay_outage::kafka::killed_during_a_drain_in_lanes",
                "kafka_leaders::a_leader_that_changes_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&[
                "relay_outage::kafka::frozen_during_a_drain_in_lanes",
                "kafka_leaders::a_leader_that_changes_during_a_drain_in_lanes",
            ]),
        },
    ),
    (
        "rabbitmq",
        Faults {
            partial_outage: Tested(&[
                "partial_outage::a_full_rabbitmq_queue_in_rows",
                "partial_outage::a_full_rabbitmq_queue_in_lanes",
            ]),
            refused: Tested(&[
                "refusals::rabbitmq::only_what_is_refused_dies",
                "rabbitmq_returns::rows_to_a_transient_queue",
                "rabbitmq_returns::rows_to_a_durable_queue",
                "rabbitmq_returns::rows_to_a_quorum_queue",
                "rabbitmq_returns::lanes_to_a_transient_queue",
                "rabbitmq_returns::lanes_to_a_durable_queue",
                "rabbitmq_returns::lanes_to_a_quorum_queue",
            ]),
            full: Tested(&[
                "partial_outage::a_full_rabbitmq_queue_in_rows",
                "partial_outage::a_full_rabbitmq_queue_in_lanes",
            ]),
            oversize: Tested(&[
                "rabbitmq::deliveries::a_part_that_is_too_large_is_refused_and_the_others_arrive",
                "poison::rabbitmq_rows_die_alone",
                "poison::rabbitmq_lanes_die_alone",
            ]),
            killed: Tested(&[
                "relay_outage::rabbitmq::killed_during_a_drain_in_rows",
                "relay_outage::rabbitmq::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::rabbitmq::frozen_during_a_drain_in_lanes"]),
        },
    ),
    (
        "nats",
        Faults {
            partial_outage: Tested(&[
                "partial_outage::a_full_nats_stream_in_rows",
                "partial_outage::a_full_nats_stream_in_lanes",
            ]),
            refused: Tested(&["refusals::nats::only_what_is_refused_dies"]),
            full: Tested(&[
                "partial_outage::a_full_nats_stream_in_rows",
                "partial_outage::a_full_nats_stream_in_lanes",
            ]),
            oversize: Tested(&[
                "nats::deliveries::a_part_that_is_too_large_is_refused_and_the_others_arrive",
                "poison::nats_rows_die_alone",
            ]),
            killed: Tested(&[
                "relay_outage::nats::killed_during_a_drain_in_rows",
                "relay_outage::nats::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::nats::frozen_during_a_drain_in_lanes"]),
        },
    ),
    (
        "redis",
        Faults {
            partial_outage: Impossible(
                "a single server has one memory and one process for all streams: they fail \
                 together",
            ),
            refused: Tested(&["refusals::redis::only_what_is_refused_dies"]),
            full: Tested(&["broker_changes::a_redis_that_is_out_of_memory"]),
            oversize: Impossible("a value may have 512 MiB, a payload of an outbox 4 MiB"),
            killed: Tested(&[
                "relay_outage::redis::killed_during_a_drain_in_rows",
                "relay_outage::redis::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::redis::frozen_during_a_drain_in_lanes"]),
        },
    ),
    (
        "redis_cluster",
        Faults {
            partial_outage: Tested(&[
                "partial_outage::a_redis_cluster_without_one_of_its_nodes_in_rows",
                "partial_outage::a_redis_cluster_without_one_of_its_nodes_in_lanes",
                "partial_outage::a_redis_cluster_with_a_frozen_node_in_rows",
                "partial_outage::a_redis_cluster_with_a_frozen_node_in_lanes",
            ]),
            refused: Tested(&["refusals::redis_cluster::only_what_is_refused_dies"]),
            full: Tested(&["broker_changes::a_redis_cluster_that_is_out_of_memory"]),
            oversize: Impossible("a value may have 512 MiB, a payload of an outbox 4 MiB"),
            killed: Tested(&[
                "relay_outage::redis_cluster::killed_during_a_drain_in_rows",
                "relay_outage::redis_cluster::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::redis_cluster::frozen_during_a_drain_in_lanes"]),
        },
    ),
    (
        "http",
        Faults {
            partial_outage: Tested(&[
                "partial_outage::one_of_two_receivers_in_rows",
                "partial_outage::one_of_two_receivers_in_lanes",
            ]),
            refused: Tested(&["refusals::http::only_what_is_refused_dies"]),
            full: Tested(&["broker_changes::a_receiver_that_asks_for_a_pause"]),
            oversize: Tested(&[
                "http::deliveries::a_part_that_is_too_large_is_refused_and_the_others_arrive",
            ]),
            killed: Tested(&[
                "relay_outage::http::killed_during_a_drain_in_rows",
                "relay_outage::http::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::http::frozen_during_a_drain_in_lanes"]),
        },
    ),
    (
        "chat",
        Faults {
            partial_outage: Tested(&["partial_outage::one_of_two_webhooks_of_a_chat"]),
            refused: Tested(&["refusals::chat::only_what_is_refused_dies"]),
            full: Tested(&["broker_changes::a_chat_that_asks_for_a_pause"]),
            oversize: Impossible("a text is cut to what the chat takes before it is sent"),
            killed: Tested(&[
                "relay_outage::chat::killed_during_a_drain_in_rows",
                "relay_outage::chat::killed_during_a_drain_in_lanes",
            ]),
            frozen: Tested(&["relay_outage::chat::frozen_during_a_drain_in_lanes"]),
        },
    ),
];

/// Modules of the sinks that have no server.
const WITHOUT_SERVER: [&str; 4] = ["fan_out", "handler", "log", "null"];
/// Modules that sinks share.
const SHARED: [&str; 1] = ["waves"];

#[test]
fn every_sink_is_in_the_table() {
    let source = include_str!("../../src/sinks/mod.rs");
    let modules = source.lines().filter_map(|line| {
        let (_, name) = line.strip_suffix(';')?.split_once("mod ")?;
        Some(name)
    });
    let known: BTreeSet<&str> = modules.collect();
    let others = BTreeSet::from_iter(WITHOUT_SERVER.into_iter().chain(SHARED));
    let wanted: BTreeSet<&str> = known.difference(&others).copied().collect();
    // A cluster fails in other ways than a single server, but has the same sink.
    let listed: BTreeSet<&str> =
        TABLE.iter().map(|(sink, _)| *sink).filter(|sink| *sink != "redis_cluster").collect();
    assert_eq!(listed, wanted);
}

#[test]
fn every_fault_has_its_tests_or_a_reason() {
    let program = std::env::current_exe().unwrap();
    let listed = Command::new(program).args(["--list", "--format", "terse"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let tests: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    assert!(tests.len() > 100, "{listed}");
    for (sink, faults) in &TABLE {
        let Faults { partial_outage, refused, full, oversize, killed, frozen } = faults;
        for cell in [partial_outage, refused, full, oversize, killed, frozen] {
            match cell {
                Tested(names) => {
                    assert!(!names.is_empty(), "{sink}: a fault without a test");
                    for name in *names {
                        assert!(tests.contains(name), "{sink}: there is no test {name}");
                    }
                }
                Impossible(reason) => {
                    assert!(reason.len() > 30, "{sink}: `{reason}` says too little")
                }
            }
        }
    }
}
