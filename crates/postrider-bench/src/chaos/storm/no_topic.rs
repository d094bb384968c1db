//! Replaces `topic` if this program was built without Kafka.

// Async like the functions that they replace, which wait for a broker.
#![expect(clippy::unused_async)]

use std::sync::Arc;

use postrider_command::Failure;

use super::journal::Journal;
use crate::bench::kafka;

/// Has no values.
pub(super) enum Topic {}

impl Topic {
    pub(super) async fn create(_brokers: &str, _journal: Arc<Journal>) -> Result<Self, Failure> {
        Err(kafka::absent())
    }

    pub(super) fn brokers(&self) -> &str {
        match *self {}
    }

    pub(super) fn name(&self) -> &str {
        match *self {}
    }

    pub(super) async fn caught_up(&self) -> Result<(), Failure> {
        match *self {}
    }

    pub(super) async fn delete(self) -> Result<(), Failure> {
        match self {}
    }
}
