//! Interprets Kafka's answer to a message.

use rdkafka::types::RDKafkaErrorCode as Code;

/// The meaning of an error code for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// No broker will ever accept this message.
    Rejected,
    /// The record batch that contained the message is too large for the topic: another message in
    /// it may be the cause.
    TooLarge,
    /// The topic does not exist or cannot exist.
    NoTopic,
    /// The relay's credentials or rights are not sufficient.
    Credentials,
    /// Another message failed first: nothing is known about this one.
    Untried,
    /// The brokers are unavailable, or another cause that is not the message.
    Down,
}

pub(super) fn meaning(code: Code) -> Meaning {
    match code {
        Code::InvalidMessage
        | Code::InvalidRecord
        | Code::InvalidTimestamp
        | Code::PolicyViolation
        | Code::UnsupportedForMessageFormat => Meaning::Rejected,
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            Meaning::TooLarge
        }
        Code::UnknownTopic
        | Code::UnknownTopicOrPartition
        | Code::UnknownPartition
        | Code::UnknownTopicId
        | Code::InvalidTopic => Meaning::NoTopic,
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::UnsupportedSASLMechanism => Meaning::Credentials,
        // The producer stopped for good, was purged, or lost its position in the sequence. The next
        // producer starts from scratch.
        Code::PurgeQueue
        | Code::PurgeInflight
        | Code::Fatal
        | Code::GaplessGuarantee
        | Code::State
        | Code::InvalidDifferentRecord
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::ProducerFenced => Meaning::Untried,
        _ => Meaning::Down,
    }
}

/// Returns whether the producer cannot be used after this.
pub(super) fn ends_producer(code: Code) -> bool {
    matches!(
        code,
        Code::Fatal
            | Code::GaplessGuarantee
            | Code::State
            | Code::OutOfOrderSequenceNumber
            | Code::UnknownProducerId
            | Code::InvalidProducerEpoch
            | Code::ProducerFenced
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_mean_what_the_specification_says() {
        for (codes, wanted) in [
            (&[Code::InvalidRecord, Code::PolicyViolation][..], Meaning::Rejected),
            (&[Code::MessageSizeTooLarge, Code::MessageBatchTooLarge], Meaning::TooLarge),
            (&[Code::UnknownTopic, Code::InvalidTopic], Meaning::NoTopic),
            (&[Code::Authentication, Code::TopicAuthorizationFailed], Meaning::Credentials),
            (
                &[Code::PurgeQueue, Code::PurgeInflight, Code::InvalidDifferentRecord],
                Meaning::Untried,
            ),
            (
                &[
                    Code::MessageTimedOut,
                    Code::AllBrokersDown,
                    Code::BrokerTransportFailure,
                    Code::NotEnoughReplicas,
                    Code::LeaderNotAvailable,
                    Code::KafkaStorageError,
                ],
                Meaning::Down,
            ),
        ] {
            for code in codes {
                assert_eq!(meaning(*code), wanted, "{code:?}");
            }
        }
    }
}
