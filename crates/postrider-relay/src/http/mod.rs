//! HTTP clients, shared by sinks, alerts, the gateway and traces.

mod client;
pub(crate) mod guard;
mod signature;

pub(crate) use client::{client, client_for, connection_error, denied};
pub(crate) use signature::Signer;
