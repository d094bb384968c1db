//! Tests of the relay: each module is a topic. They are one binary, because linking is the
//! expensive part.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

mod alerts;
mod answers_kept;
mod backup;
mod buffer;
mod buffer_crashes;
mod buffer_poison;
mod buffer_servers;
mod buffer_storm;
mod channels;
mod chat;
mod crash;
mod exports;
mod failures;
mod fan_out;
mod faults;
mod gateway;
mod handler_sink;
mod health;
mod hostile_rows;
mod http_answers;
mod http_routes;
mod http_sink;
mod lanes;
mod lanes_sharing;
mod late_commits;
mod log_sink;
mod maintenance;
mod message;
mod modes;
mod monitor;
mod operators;
mod outage;
mod pipeline;
mod pipeline_alert;
mod policy;
mod policy_property;
mod redis_sink;
mod routes;
mod safety_net;
mod settling;
mod sharing;
mod stopping;
mod store_away;
mod telemetry;
mod traces;
mod waking;
