//! The one lease: which relays live.

use std::time::Duration;

use super::Serving;

/// How a relay introduces itself.
#[derive(Debug, Clone)]
pub struct RelayIdentity {
    /// Unique for this registration: a relay that lost its lease comes back under a new id.
    pub id: String,
    /// Where it runs, for people.
    pub host: String,
    /// Version of the program, for people.
    pub version: String,
    /// The outboxes that it is going to work on.
    pub serving: Vec<Serving>,
}

/// A registered relay. `id` is what its rows carry in `locked_by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Id of the registration.
    pub relay_id: String,
    /// Raised by whoever declares the relay dead; every write of the relay checks it.
    pub epoch: i64,
}

/// What one look at the list of relays shows. A relay is dead when its heartbeat has not moved for
/// the lease time on the *observer's* monotonic clock; wall clocks are never compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPulse {
    /// Id of the registration.
    pub relay_id: String,
    /// See [`Lease::epoch`].
    pub epoch: i64,
    /// Counts up while the relay lives.
    pub heartbeat: i64,
    /// Declared dead already; its rows are being recovered.
    pub fenced: bool,
    /// Where it runs.
    pub host: String,
    /// What it works on.
    pub serving: Vec<Serving>,
    /// Time since registration, on the database's clock.
    pub age: Duration,
}
