//! The outcome of a delivery, as data.

use std::time::Duration;

/// Longest `Retry-After` that is honoured.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The outcome of one event. The relay decides what follows: see [`decide`](crate::policy::decide).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The destination acknowledged it.
    Delivered,
    /// The destination will never accept this event.
    Rejected {
        /// The answer in one sentence.
        error: String,
        /// More of the answer, such as the body.
        detail: Option<String>,
    },
    /// The event cannot be turned into a message. Nothing was sent, so this says nothing about the
    /// destination's health.
    CannotEncode {
        /// The defect of the event.
        error: String,
    },
    /// No route or branch takes this event.
    NoRoute {
        /// The reason: a missing route or field, or a filter that cannot be applied.
        error: String,
    },
    /// This event failed; another attempt may succeed.
    Retry {
        /// The answer in one sentence.
        error: String,
    },
    /// The destination is down, independent of the event.
    Down {
        /// The answer in one sentence.
        error: String,
        /// The wait that the destination asked for.
        retry_after: Option<Duration>,
        /// The destination refused the relay's credentials, which an operator must fix.
        credentials: bool,
        /// Whether the event itself may be the cause.
        cause: Cause,
    },
    /// Not attempted: cut off by the deadline, or behind a failed event.
    Untried,
    /// Nothing had to be sent, because the purpose of the event was already fulfilled. It is
    /// settled as delivered, and says nothing about the destination's health.
    AlreadyDone,
}

/// Possible causes of an [`Outcome::Down`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Possibly the event: if its destination accepted others since the event's previous attempt,
    /// this failure spends an attempt.
    Unknown,
    /// The destination, independent of the event: a full queue, a refused connection.
    Destination,
    /// The server through which all destinations of the sink are reached
    /// ([`Sink::server`](crate::Sink::server)), independent of the event.
    Server,
}

impl Outcome {
    /// Returns whether the outcome says nothing about the destination's health.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(
            self,
            Self::Untried | Self::AlreadyDone | Self::NoRoute { .. } | Self::CannotEncode { .. }
        )
    }
}
