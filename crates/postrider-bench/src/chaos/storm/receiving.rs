//! The destination of a storm's events: the receiver of this command, or a Kafka topic.

use std::sync::Arc;

use postrider_command::Failure;
use rand::rngs::StdRng;

use super::journal::Journal;
use super::lull::Lull;
use super::receiver::{Faults, Receiver};
use super::relay::MESSAGE_BYTES_MAX;
use super::topic::Topic;
use crate::cli::{StormArgs, StormSink};

pub(super) enum Receiving {
    Http(Receiver),
    Kafka(Topic),
}

impl Receiving {
    pub(super) async fn start(
        args: &StormArgs,
        journal: &Arc<Journal>,
        lull: &Lull,
        dice: &mut StdRng,
    ) -> Result<Self, Failure> {
        Ok(match args.sink {
            StormSink::Http => Self::Http(Receiver::start(journal, lull, dice).await?),
            StormSink::Kafka => {
                let brokers = args.brokers.as_deref().unwrap_or_default();
                Self::Kafka(Topic::create(brokers, Arc::clone(journal)).await?)
            }
        })
    }

    /// Returns the arguments that direct relays to this destination.
    pub(super) fn relay_arguments(&self) -> Vec<String> {
        match self {
            Self::Http(_) => Vec::new(),
            Self::Kafka(topic) => {
                ["--brokers", topic.brokers(), "--topic", topic.name()].map(str::to_owned).into()
            }
        }
    }

    /// Returns the aggregate types of the events.
    pub(super) fn destinations(&self) -> Vec<String> {
        match self {
            Self::Http(receiver) => receiver.ports.iter().map(u16::to_string).collect(),
            Self::Kafka(_) => vec!["storm".to_owned()],
        }
    }

    /// Number of bytes that poison has in addition: too many for a Kafka message.
    pub(super) fn poison_bytes(&self) -> usize {
        match self {
            Self::Http(_) => 0,
            Self::Kafka(_) => MESSAGE_BYTES_MAX,
        }
    }

    pub(super) fn misbehave(&mut self) {
        if let Self::Http(receiver) = self {
            receiver.misbehave();
        }
    }

    pub(super) async fn calm(&mut self) {
        if let Self::Http(receiver) = self {
            receiver.calm().await;
        }
    }

    /// Waits until everything that was sent is recorded.
    pub(super) async fn caught_up(&self) -> Result<(), Failure> {
        match self {
            Self::Http(_) => Ok(()),
            Self::Kafka(topic) => topic.caught_up().await,
        }
    }

    /// Removes what was created outside of this process.
    pub(super) async fn remove(self) -> Result<(), Failure> {
        match self {
            Self::Http(_) => Ok(()),
            Self::Kafka(topic) => topic.delete().await,
        }
    }

    pub(super) fn faults(&self) -> Faults {
        match self {
            Self::Http(receiver) => receiver.faults(),
            Self::Kafka(_) => Faults::default(),
        }
    }
}
