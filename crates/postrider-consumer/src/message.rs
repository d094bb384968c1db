//! Messages parsed from Kafka.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use postrider::{
    Incoming,
    internal::{IDENTITY_CHARS_MAX, hex},
};
use postrider_store::InboxLetter;
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use sha2::{Digest, Sha256};

/// The header with the event id that Postrider's relay sends with each message.
const EVENT_ID: &str = "postrider-event-id";
const EVENT_TYPE: &str = "postrider-event-type";
/// The header of a CloudEvent with the time when the event was appended.
const CREATED_AT: &str = "ce_time";

/// A message from a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KafkaMessage {
    /// Identity and age of the event. A message without the header `postrider-event-id` is
    /// identified by its position, `topic/partition@offset`: a repeat by the producer is then
    /// another event. If that is too long for an inbox, a fingerprint of the topic replaces the
    /// beginning of its name. For a header that is not UTF-8, the identity is `sha256:` and the
    /// hash of its bytes.
    pub event: Incoming,
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Key; Postrider's relay sends the ordering key.
    pub key: Option<Vec<u8>>,
    /// Headers. If a name occurs twice, the last one.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub payload: Vec<u8>,
}

impl KafkaMessage {
    pub(super) fn read(message: &impl Message) -> Self {
        let mut headers = BTreeMap::new();
        let mut identity = None;
        for header in message.headers().into_iter().flat_map(Headers::iter) {
            let bytes = header.value.unwrap_or_default();
            if header.key == EVENT_ID {
                identity = Some(identity_of_bytes(bytes));
            }
            headers.insert(header.key.to_owned(), String::from_utf8_lossy(bytes).into_owned());
        }
        let (topic, partition, offset) =
            (message.topic().to_owned(), message.partition(), message.offset());
        let event_id = identity.unwrap_or_else(|| identity_of(&topic, partition, offset));
        Self {
            event: incoming(event_id, &headers),
            topic,
            partition,
            offset,
            key: message.key().map(<[u8]>::to_vec),
            headers,
            payload: message.payload().unwrap_or_default().to_vec(),
        }
    }

    /// Restores the message of a dead letter.
    pub(super) fn of_letter(letter: &InboxLetter) -> Self {
        let (topic, rest) = letter.source.rsplit_once('/').unwrap_or((&letter.source, ""));
        let (partition, offset) = rest.split_once('@').unwrap_or_default();
        Self {
            event: incoming(letter.event_id.clone(), &letter.headers),
            topic: topic.to_owned(),
            partition: partition.parse().unwrap_or(-1),
            offset: offset.parse().unwrap_or(-1),
            key: letter.key.clone(),
            headers: letter.headers.clone(),
            payload: letter.payload.clone(),
        }
    }

    /// Returns the event type, if the message states it.
    pub fn event_type(&self) -> Option<&str> {
        self.headers.get(EVENT_TYPE).map(String::as_str)
    }

    /// Returns the origin: `topic/partition@offset`.
    pub fn source(&self) -> String {
        place(&self.topic, self.partition, self.offset)
    }

    /// Returns the identity of a message that does not bring a usable one.
    pub(super) fn identity_by_place(&self) -> String {
        identity_of(&self.topic, self.partition, self.offset)
    }
}

fn place(topic: &str, partition: i32, offset: i64) -> String {
    format!("{topic}/{partition}@{offset}")
}

/// Returns a position that fits an inbox. Topics have up to 249 characters, and two long ones may
/// have the same end: the fingerprint distinguishes them, or the second would count as a repeat.
fn identity_of(topic: &str, partition: i32, offset: i64) -> String {
    let place = place(topic, partition, offset);
    let length = place.chars().count();
    if length <= IDENTITY_CHARS_MAX {
        return place;
    }
    let fingerprint = hex(&Sha256::digest(topic)[..8]);
    let skipped = length + fingerprint.len() + 1 - IDENTITY_CHARS_MAX;
    let end: String = place.chars().skip(skipped).collect();
    format!("{fingerprint}~{end}")
}

/// Returns the identity for a header's bytes. Bytes that are not text are different events if they
/// differ. Decoded with replacement characters, they would be one event, and all but the first
/// would be ignored as repeats.
fn identity_of_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("sha256:{}", hex(&Sha256::digest(bytes))),
    }
}

fn incoming(event_id: String, headers: &BTreeMap<String, String>) -> Incoming {
    match created_at(headers) {
        Some(created_at) => Incoming::new(event_id).created_at(created_at),
        None => Incoming::new(event_id),
    }
}

fn created_at(headers: &BTreeMap<String, String>) -> Option<DateTime<Utc>> {
    let time = DateTime::parse_from_rfc3339(headers.get(CREATED_AT)?).ok()?;
    Some(time.with_timezone(&Utc))
}

/// Returns the offset after the last message of each partition that is still assigned.
pub(super) fn offsets_after(
    messages: &[KafkaMessage],
    assigned: &TopicPartitionList,
) -> TopicPartitionList {
    let mut next: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    for message in messages {
        next.insert((&message.topic, message.partition), message.offset + 1);
    }
    let mut offsets = TopicPartitionList::new();
    for ((topic, partition), offset) in next {
        if assigned.find_partition(topic, partition).is_some() {
            // Fails only for offsets that no partition has.
            drop(offsets.add_partition_offset(topic, partition, Offset::Offset(offset)));
        }
    }
    offsets
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use rdkafka::Timestamp;
    use rdkafka::message::{Header, OwnedHeaders, OwnedMessage};

    use super::*;

    fn message(partition: i32, offset: i64) -> KafkaMessage {
        KafkaMessage {
            event: Incoming::new("e"),
            topic: "t".to_owned(),
            partition,
            offset,
            key: None,
            headers: BTreeMap::new(),
            payload: Vec::new(),
        }
    }

    #[test]
    fn offsets_are_committed_for_partitions_that_are_still_assigned() {
        let mut assigned = TopicPartitionList::new();
        assigned.add_partition("t", 1);
        let messages = [message(1, 5), message(2, 7), message(1, 6)];
        let offsets = offsets_after(&messages, &assigned);
        assert_eq!(offsets.count(), 1);
        let found = offsets.find_partition("t", 1).unwrap();
        assert_eq!(found.offset(), Offset::Offset(7));
    }

    #[test]
    fn the_place_of_a_message_in_a_long_topic_is_an_identity_that_an_inbox_takes() {
        let last = (i32::MAX, i64::MAX);
        for letter in ["t", "ü"] {
            let [one, other] = ["a", "b"].map(|first| format!("{first}{}", letter.repeat(248)));
            let id = identity_of(&one, last.0, last.1);
            assert_eq!(id.chars().count(), 100, "{id}");
            assert!(id.ends_with("/2147483647@9223372036854775807"), "{id}");
            assert_ne!(
                id,
                identity_of(&other, last.0, last.1),
                "they differ at the beginning only"
            );
            assert_ne!(id, identity_of(&one, last.0, last.1 - 1));
        }
        assert_eq!(identity_of(&"t".repeat(96), 0, 1).chars().count(), 100, "as it is");
        assert_eq!(identity_of("t", 0, 1), "t/0@1");
    }

    #[test]
    fn the_source_of_a_letter_is_read_back() {
        let source = message(3, 17).source();
        assert_eq!(source, "t/3@17");
        let letter = InboxLetter {
            id: 1,
            consumer: "c".to_owned(),
            event_id: "e-1".to_owned(),
            source,
            key: None,
            headers: BTreeMap::new(),
            payload: b"{}".to_vec(),
            error_message: String::new(),
            failed_at: Utc::now(),
            retry_asked_at: None,
        };
        let read = KafkaMessage::of_letter(&letter);
        assert_eq!((read.topic.as_str(), read.partition, read.offset), ("t", 3, 17));
        assert_eq!(read.event.event_id, "e-1");
    }

    fn bytes() -> BoxedStrategy<Vec<u8>> {
        prop_oneof![
            2 => "[a-z0-9-]{0,8}|sha256:[0-9a-f]{2}|2026-0[1-9]-01T00:00:00Z"
                .prop_map(String::into_bytes),
            1 => vec(any::<u8>(), 0..8),
            1 => (any::<u8>(), 0..400_usize).prop_map(|(byte, count)| vec![byte; count]),
        ]
        .boxed()
    }

    /// Generates headers with repeated names, with and without values.
    fn headers() -> impl Strategy<Value = Vec<(String, Option<Vec<u8>>)>> {
        let name = "postrider-event-id|postrider-event-type|ce_time|[a-z]{1,3}";
        vec((name, option::weighted(0.9, bytes())), 0..5)
    }

    fn sent(
        headers: &[(String, Option<Vec<u8>>)],
        key: Option<Vec<u8>>,
        payload: Option<Vec<u8>>,
        (partition, offset): (i32, i64),
    ) -> OwnedMessage {
        let written = headers.iter().fold(OwnedHeaders::new(), |written, (key, value)| {
            written.insert(Header { key, value: value.as_deref() })
        });
        let topic = "t".to_owned();
        OwnedMessage::new(
            payload,
            key,
            topic,
            Timestamp::NotAvailable,
            partition,
            offset,
            Some(written),
        )
    }

    proptest! {
        /// A message of any bytes can be parsed, and is restored unchanged from a dead letter. Its
        /// identity fits an inbox, or its position does.
        #[test]
        fn fuzz_kafka_messages(
            headers in headers(),
            key in option::of(bytes()),
            payload in option::of(bytes()),
            place in (0..i32::MAX, 0..i64::MAX),
        ) {
            let read = KafkaMessage::read(&sent(&headers, key.clone(), payload.clone(), place));
            prop_assert_eq!((read.partition, read.offset), place);
            prop_assert_eq!(&read.payload, &payload.unwrap_or_default());
            prop_assert_eq!(&read.key, &key);
            let given = headers.iter().rfind(|(name, _)| name == EVENT_ID);
            let given = given.map(|(_, value)| value.clone().unwrap_or_default());
            match given.as_deref().map(std::str::from_utf8) {
                None => prop_assert_eq!(&read.event.event_id, &read.source()),
                Some(Ok(text)) => prop_assert_eq!(&read.event.event_id, text),
                Some(Err(_)) => prop_assert_eq!(read.event.event_id.len(), "sha256:".len() + 64),
            }
            let by_place = Incoming::new(read.identity_by_place());
            prop_assert!(postrider::internal::identities(&[by_place]).is_ok());
            let stored = postrider_store::InboxLetter {
                id: 1,
                consumer: "c".to_owned(),
                event_id: read.event.event_id.clone(),
                source: read.source(),
                key: read.key.clone(),
                headers: serde_json::from_value(serde_json::json!(read.headers)).unwrap(),
                payload: read.payload.clone(),
                error_message: String::new(),
                failed_at: Utc::now(),
                retry_asked_at: None,
            };
            prop_assert_eq!(KafkaMessage::of_letter(&stored), read);
        }

        /// Two messages with different identities are different events, whatever their bytes.
        #[test]
        fn fuzz_kafka_messages_are_told_apart(one in bytes(), other in bytes()) {
            let read = |bytes: &[u8]| {
                let headers = [(EVENT_ID.to_owned(), Some(bytes.to_vec()))];
                KafkaMessage::read(&sent(&headers, None, None, (0, 1))).event.event_id
            };
            prop_assert_eq!(read(&one) == read(&other), one == other);
        }
    }
}
