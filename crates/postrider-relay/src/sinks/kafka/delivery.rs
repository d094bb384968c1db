//! Delivers one batch: prepare, queue all, wait for the answers, read them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use postrider_store::Event;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::answers::{Meaning, ends_producer, meaning};
use super::producer::{Call, Producer, Record, Report, Trouble};
use super::settings::Kind;
use super::{KafkaSink, check, check_topic};
use crate::message::envelope::Message;
use crate::message::template::verbatim;
use crate::message::view::EventView;
use crate::outcome::{Cause, Outcome};
use crate::sink::Batch;

/// `Down` outcomes in one call, after which the rest of the call is `Untried`. A `Down` is about
/// the brokers and not about the event, but the relay may charge it to the event.
const DOWN_PER_CALL_MAX: usize = 5;
/// Interval between checks of deadline, lease and producer while waiting for answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest wait for room in the queue before the deadline is checked.
const ROOM_WAIT: Duration = Duration::from_millis(10);
/// Time for a producer to report what it dropped; the relay allows for it beyond the deadline.
const PURGE_WAIT: Duration = Duration::from_secs(1);
/// Messages queued before other tasks get a turn.
const YIELD_EVERY: usize = 256;
/// Overhead of a record batch with a single message, in bytes.
const FRAME_BYTES: usize = 128;
/// Prefix of CloudEvents attributes in Kafka headers.
const ATTRIBUTE_PREFIX: &str = "ce_";

/// A message with its topic.
struct Routed<'a> {
    event: &'a Event,
    topic: Cow<'a, str>,
    message: Message<'a>,
    /// Whether the topic is failing.
    apart: bool,
}

impl<'a> Routed<'a> {
    /// Builds the message of an event.
    ///
    /// # Errors
    /// Returns the outcome of an event that cannot be turned into a message.
    fn of(sink: &'a KafkaSink, view: &'a EventView<'a>) -> Result<Self, Outcome> {
        let cannot_encode = |error: String| Outcome::CannotEncode { error };
        let topic = sink.router.resolve(view, verbatim)?;
        check_topic(&topic)
            .map_err(|error| cannot_encode(format!("the event makes topic `{topic}`: {error}")))?;
        let payload = Cow::Borrowed(view.event.payload.as_str());
        let message =
            sink.envelope.message(view, payload, ATTRIBUTE_PREFIX).map_err(&cannot_encode)?;
        let apart = sink.ails(&topic);
        let routed = Self { event: view.event, topic, message, apart };
        let (bytes, bytes_max) = (routed.bytes(), sink.settings.message_bytes_max);
        if bytes > bytes_max {
            return Err(cannot_encode(format!(
                "the message has {bytes} bytes, `message_bytes_max` of sink `{}` is {bytes_max}",
                sink.settings.name
            )));
        }
        Ok(routed)
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let content_type = [("content-type", self.message.content_type.as_ref())];
        let headers = self.message.headers.iter().map(|(name, value)| (&**name, &**value));
        headers.chain(content_type)
    }

    fn bytes(&self) -> usize {
        let headers: usize = self.headers().map(|(name, value)| name.len() + value.len()).sum();
        FRAME_BYTES + self.event.aggregate_id.len() + self.message.body.len() + headers
    }

    fn native_headers(&self) -> OwnedHeaders {
        let headers = OwnedHeaders::new_with_capacity(self.message.headers.len() + 1);
        self.headers().fold(headers, |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        })
    }
}

/// Why a call stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GivenUp {
    /// The brokers did not answer in time, or refused the login.
    Silence,
    /// The producer is broken, or the events no longer belong to this relay: nothing is known about
    /// the brokers.
    Cut,
}

pub(super) struct Delivery<'a> {
    sink: &'a KafkaSink,
    batch: Batch<'a>,
    messages: Vec<Option<Routed<'a>>>,
    outcomes: Vec<Option<Outcome>>,
    too_large: Vec<usize>,
    /// Keys with an event that was not delivered, if order is kept.
    stopped: HashSet<(&'a str, &'a str)>,
    downs: usize,
}

impl<'a> Delivery<'a> {
    /// Prepares every message before the first one is sent: a message that is refused here leaves
    /// no gap in what the producer sends.
    pub(super) fn new(sink: &'a KafkaSink, batch: Batch<'a>, views: &'a [EventView<'a>]) -> Self {
        let count = batch.events.len();
        let mut delivery = Self {
            sink,
            batch,
            messages: Vec::with_capacity(count),
            outcomes: vec![None; count],
            too_large: Vec::new(),
            stopped: HashSet::new(),
            downs: 0,
        };
        for (index, view) in views.iter().enumerate() {
            let message = Routed::of(sink, view);
            delivery.messages.push(message.map_err(|o| delivery.outcomes[index] = Some(o)).ok());
        }
        delivery
    }

    pub(super) async fn send_all(&mut self) {
        let kind = if self.batch.keep_order { Kind::Ordered } else { Kind::Free };
        let mut start = 0;
        while start < self.batch.events.len() {
            let end = self.stretch_end(start);
            self.send(kind, false, start..end).await;
            self.send(kind, true, start..end).await;
            start = end;
        }
    }

    /// Resends messages one by one. A record batch that is too large for its topic is refused with
    /// all messages in it; sent one by one, only the oversized one fails and the others arrive.
    pub(super) async fn send_too_large_alone(&mut self) {
        let suspects = std::mem::take(&mut self.too_large);
        if suspects.is_empty() {
            return;
        }
        self.stopped.clear();
        let mut innocent = false;
        for index in 0..self.batch.events.len() {
            if suspects.binary_search(&index).is_err() {
                self.stop_key(index);
                continue;
            }
            let apart = self.messages[index].as_ref().is_some_and(|message| message.apart);
            self.send(Kind::Alone, apart, index..index + 1).await;
            if self.too_large.pop().is_some() {
                let topic = self.topic(index);
                let error = format!(
                    "the message is larger than topic `{topic}` takes; raise its \
                     `max.message.bytes`, or lower `message_bytes_max` of sink `{}`",
                    self.sink.settings.name
                );
                self.settle(index, Outcome::Rejected { error, detail: None });
            }
            innocent |= self.outcomes[index] == Some(Outcome::Delivered);
        }
        if innocent {
            self.sink.make_smaller_batches();
        }
    }

    pub(super) fn outcomes(self) -> Vec<Outcome> {
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Untried)).collect()
    }

    /// Returns the end of the events that may be in flight together. If order is kept, an event of
    /// a key with another topic waits for the answers of the previous one, because topics are
    /// independent of each other.
    fn stretch_end(&self, start: usize) -> usize {
        let all = self.batch.events.len();
        if !self.batch.keep_order || self.has_one_topic() {
            return all;
        }
        let mut topics: HashMap<(&str, &str), &str> = HashMap::new();
        for (index, message) in self.messages.iter().enumerate().skip(start) {
            let Some(message) = message else { continue };
            let topic = topics.entry(message.event.key()).or_insert(&message.topic);
            if **topic != *message.topic {
                return index;
            }
        }
        all
    }

    fn has_one_topic(&self) -> bool {
        let mut topics = self.messages.iter().flatten().map(|message| &message.topic);
        let first = topics.next();
        topics.all(|topic| Some(topic) == first)
    }

    /// Sends the messages of a range that have no outcome yet and reads the answers: either those
    /// to failing topics, or the others.
    async fn send(&mut self, kind: Kind, apart: bool, range: Range<usize>) {
        if !range.clone().any(|index| self.belongs(index, apart)) {
            return;
        }
        let producer = match self.sink.producer(kind, apart) {
            Ok(producer) => producer,
            Err(error) => {
                range.for_each(|index| self.down(index, error.clone(), false));
                return;
            }
        };
        let sending = Sending {
            sink: self.sink,
            kind,
            apart,
            producer,
            call: Call::new(range.len()),
            first: range.start,
        };
        self.queue(&sending, range.clone()).await;
        let given_up = sending.answered(&self.batch).await;
        self.read(&sending, range, given_up);
    }

    async fn queue(&mut self, sending: &Sending<'_>, range: Range<usize>) {
        // Includes the keys of earlier stretches, and keys with an event that could not be queued.
        let mut stopped = self.stopped.clone();
        for index in range {
            if !self.belongs(index, sending.apart) {
                continue;
            }
            let key = self.batch.events[index].key();
            if self.outcomes[index].is_none() && stopped.contains(&key) {
                self.outcomes[index] = Some(Outcome::Untried);
            }
            let (None, Some(message)) = (&self.outcomes[index], &self.messages[index]) else {
                stopped.extend(self.batch.keep_order.then_some(key));
                continue;
            };
            let record = BaseRecord::with_opaque_to(&message.topic, sending.expect(index))
                .key(message.event.aggregate_id.as_str())
                .payload(message.message.body.as_ref())
                .headers(message.native_headers());
            if let Err(code) = sending.enqueue(record, &self.batch).await {
                sending.call.answer(index - sending.first, Err(code));
                stopped.extend(self.batch.keep_order.then_some(key));
            }
            if index % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
        }
        sending.call.all_added();
    }

    fn read(&mut self, sending: &Sending<'_>, range: Range<usize>, given_up: Option<GivenUp>) {
        let trouble = sending.producer.trouble();
        let mut broken = given_up.is_some();
        for index in range {
            if !self.belongs(index, sending.apart) {
                continue;
            }
            if self.outcomes[index].is_some() {
                self.stop_key(index);
                continue;
            }
            let code = match sending.call.take_answer(index - sending.first) {
                Some(Ok(())) => {
                    self.outcomes[index] = Some(Outcome::Delivered);
                    if sending.apart {
                        self.sink.took(self.topic(index));
                    }
                    continue;
                }
                Some(Err(code)) => code,
                // Not reported even after the purge: it may still arrive, like a message dropped in
                // flight.
                None => Code::PurgeInflight,
            };
            let meaning = meaning(code);
            let gap = matches!(meaning, Meaning::TooLarge | Meaning::Rejected);
            broken |= ends_producer(code) || (gap && sending.kind == Kind::Ordered);
            match meaning {
                Meaning::TooLarge => self.too_large.push(index),
                Meaning::Rejected => {
                    let error = format!("refused by the broker: {code}");
                    self.settle(index, Outcome::Rejected { error, detail: None });
                }
                Meaning::NoTopic => self.no_topic(index),
                Meaning::Credentials => self.down(index, code.to_string(), true),
                Meaning::Untried if given_up == Some(GivenUp::Silence) => {
                    let refused = trouble.as_ref().is_some_and(Trouble::is_refusal);
                    let reason = trouble.as_ref().map_or("no answer in time", |t| &t.reason);
                    let error = format!("{}: {reason}", self.sink.settings.brokers);
                    self.down(index, error, refused);
                }
                Meaning::Untried => self.settle(index, Outcome::Untried),
                Meaning::Down => self.down(index, code.to_string(), false),
            }
        }
        if broken {
            self.sink.retire(&sending.producer);
        }
    }

    /// Returns whether a message is sent with those to failing topics, or with the others. An event
    /// without a message already has its outcome, and stops its key in both.
    fn belongs(&self, index: usize, apart: bool) -> bool {
        self.messages[index].as_ref().is_none_or(|message| message.apart == apart)
    }

    fn topic(&self, index: usize) -> &str {
        self.messages[index].as_ref().map_or("", |message| &message.topic)
    }

    /// Sets the outcome of an event whose topic is missing. If the topic is fixed, the
    /// configuration is wrong, and every event waits; if the event names it, the event is the
    /// cause.
    fn no_topic(&mut self, index: usize) {
        let topic = self.topic(index);
        let error = check::no_topic(topic);
        if self.sink.fixed_topics.iter().any(|fixed| fixed == topic) {
            self.down(index, error, false);
        } else {
            self.settle(index, Outcome::Rejected { error, detail: None });
        }
    }

    fn down(&mut self, index: usize, error: String, credentials: bool) {
        let behind = self.stopped.contains(&self.batch.events[index].key());
        if behind || self.downs >= DOWN_PER_CALL_MAX {
            return self.settle(index, Outcome::Untried);
        }
        self.downs += 1;
        self.sink.took_nothing(self.topic(index));
        let (retry_after, cause) = (None, Cause::Destination);
        self.settle(index, Outcome::Down { error, retry_after, credentials, cause });
    }

    fn settle(&mut self, index: usize, outcome: Outcome) {
        self.outcomes[index] = Some(outcome);
        self.stop_key(index);
    }

    fn stop_key(&mut self, index: usize) {
        let delivered = self.outcomes[index] == Some(Outcome::Delivered);
        if self.batch.keep_order && !delivered {
            self.stopped.insert(self.batch.events[index].key());
        }
    }
}

/// Messages that were handed to a producer. If it is dropped before all of them are answered (the
/// relay may drop a call at any time), it purges them: a message that no call waits for must not
/// arrive later.
struct Sending<'a> {
    sink: &'a KafkaSink,
    kind: Kind,
    apart: bool,
    producer: Arc<Producer>,
    call: Arc<Call>,
    /// Index of the first event in the batch.
    first: usize,
}

impl Sending<'_> {
    fn expect(&self, index: usize) -> Box<Report> {
        self.call.expect(index - self.first)
    }

    /// Waits for room in the queue as long as there is time.
    async fn enqueue(&self, record: Record<'_>, batch: &Batch<'_>) -> Result<(), Code> {
        let mut next = record;
        loop {
            if !batch.may_start() {
                return Err(Code::PurgeQueue);
            }
            match self.producer.enqueue(next) {
                Ok(()) => return Ok(()),
                Err((Code::QueueFull, record)) => next = record,
                Err((code, _)) => return Err(code),
            }
            drop(tokio::time::timeout(ROOM_WAIT, self.producer.room()).await);
        }
    }

    /// Waits for the answers; `Some` says why some will not arrive.
    async fn answered(&self, batch: &Batch<'_>) -> Option<GivenUp> {
        let given_up = loop {
            if self.call.done_within(LOOK_EVERY).await {
                return None;
            }
            let refused = self.producer.trouble().as_ref().is_some_and(Trouble::is_refusal);
            if self.producer.is_broken() {
                break GivenUp::Cut;
            } else if refused || Instant::now() >= batch.deadline {
                break GivenUp::Silence;
            } else if !batch.may_start() {
                break GivenUp::Cut;
            }
        };
        self.sink.retire(&self.producer);
        self.call.done_within(PURGE_WAIT).await;
        Some(given_up)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.call.is_done() {
            self.sink.retire(&self.producer);
        }
    }
}
