//! The real binary, against real databases and a real HTTP receiver: nothing in between is scripted
//! but the receiver's answers.
//!
//! Every test has a database, a receiver, a configuration file and daemons of its own, so all of
//! them run side by side. They wait for what they can see (rows, requests, metrics, exit codes),
//! with a deadline, and end with the ledger.

// A test fails by panicking: here an unwrap is the assertion that the step before it worked.
#![allow(clippy::unwrap_used)]

mod adopted;
mod adopted_columns;
mod adopted_import;
mod adopted_letters;
mod adopted_rules;
mod adopted_setup;
mod adopted_stage;
mod alerting;
mod api;
mod api_access;
mod api_contract;
mod api_figures;
mod api_hostile;
mod api_operations;
mod api_roles;
mod api_starving;
mod api_stream;
mod bad_input;
mod bench;
mod buffer;
mod caller;
mod chaos;
mod classification;
mod commands;
mod consumers;
mod dead_letter_commands;
mod delivery;
mod demo;
mod doctor;
mod files;
mod foreign;
mod full_disk;
mod fuzz;
mod gateway;
mod lanes;
mod metrics;
mod operator_commands;
mod page;
mod page_looks;
mod page_night;
mod relays;
mod routes;
mod safety_net;
mod scene;
mod servers;
mod stopping;
mod storm;
mod terminal;

/// One test per case on each of the given stores: `on_stores!(postgres, mariadb: a_case, b_case)`.
macro_rules! on_stores {
    ($($store:ident),+: $cases:tt) => {
        $( mod $store { crate::scene::tests!($store $cases); } )+
    };
}
pub(crate) use on_stores;
