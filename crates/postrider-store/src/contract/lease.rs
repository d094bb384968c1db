//! The lease of a relay, which shows that it lives.

use std::time::Duration;

use super::Serving;

/// The registration data of a relay.
#[derive(Debug, Clone)]
pub struct RelayIdentity {
    /// Unique for this registration: a relay that lost its lease registers again under a new id.
    pub id: String,
    /// Host on which it runs, for display.
    pub host: String,
    /// Version of the program, for display.
    pub version: String,
    /// The outboxes that it will work on.
    pub serving: Vec<Serving>,
}

/// The lease of a registered relay. Rows that it holds carry `relay_id` in `locked_by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Id of the registration.
    pub relay_id: String,
    /// Raised by the relay that declares this one dead; every write of the relay checks it.
    pub epoch: i64,
}

/// One entry of the list of relays. A relay is dead when its heartbeat has not changed for the
/// lease time on the *observer's* monotonic clock; wall clocks are never compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPulse {
    /// Id of the registration.
    pub relay_id: String,
    /// See [`Lease::epoch`].
    pub epoch: i64,
    /// Increases while the relay lives.
    pub heartbeat: i64,
    /// It was declared dead already; its rows are being recovered.
    pub fenced: bool,
    /// Host on which it runs.
    pub host: String,
    /// The outboxes that it works on.
    pub serving: Vec<Serving>,
    /// Time since registration, on the database's clock.
    pub age: Duration,
}
