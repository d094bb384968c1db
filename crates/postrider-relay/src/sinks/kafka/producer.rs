//! A librdkafka producer, its reports, and how it ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::metadata::Metadata;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer,
};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::Notify;

use super::answers::{Meaning, meaning};

/// A message on its way into the queue.
pub(super) type Record<'a> = BaseRecord<'a, str, str, Box<Report>>;

/// A producer that never blocks the caller, not even when it is dropped: librdkafka may wait for
/// its threads when it ends.
pub(super) struct Producer {
    /// `None` only while it is being dropped.
    client: Option<ThreadedProducer<Context>>,
}

impl Producer {
    pub(super) fn create(config: &ClientConfig) -> Result<Self, String> {
        let client = ThreadedProducer::from_config_and_context(config, Context::default())
            .map_err(|error| error.to_string())?;
        Ok(Self { client: Some(client) })
    }

    /// Puts a message into the queue, or returns it.
    #[allow(clippy::result_large_err, reason = "the record comes back to be tried again")]
    pub(super) fn enqueue<'a>(&self, record: Record<'a>) -> Result<(), (Code, Record<'a>)> {
        let Some(client) = &self.client else { return Err((Code::State, record)) };
        client.send(record).map_err(|(error, record)| {
            let code = error.rdkafka_error_code().unwrap_or(Code::InvalidArgument);
            (code, record)
        })
    }

    /// Waits until there may be room in the queue again.
    pub(super) async fn room(&self) {
        if let Some(context) = self.context() {
            context.room.notified().await;
        }
    }

    /// Returns its last error with the brokers, unless something was delivered since.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        locked(&self.context()?.trouble).clone()
    }

    /// Returns whether it will never send anything again.
    pub(super) fn is_broken(&self) -> bool {
        self.context().is_some_and(|context| context.broken.load(Ordering::Acquire))
    }

    /// Drops what is queued or in flight; each message is reported as dropped.
    pub(super) fn purge(&self) {
        if let Some(client) = &self.client {
            client.purge(PurgeConfig::default().queue().inflight());
        }
    }

    /// Blocks until everything is sent, or the timeout is over.
    pub(super) fn flush(&self, timeout: Duration) {
        if let Some(client) = &self.client
            && let Err(error) = client.flush(timeout)
        {
            tracing::warn!(%error, "messages were left in the producer's queue");
        }
    }

    /// Blocks until the brokers answer about a topic (or all topics), or the timeout is over.
    pub(super) fn metadata(
        &self,
        topic: Option<&str>,
        timeout: Duration,
    ) -> Result<Metadata, KafkaError> {
        match &self.client {
            Some(client) => client.client().fetch_metadata(topic, timeout),
            None => Err(KafkaError::Canceled),
        }
    }

    fn context(&self) -> Option<&Context> {
        self.client.as_ref().map(|client| client.client().context().as_ref())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let client = self.client.take();
        std::thread::spawn(move || drop(client));
    }
}

/// An error that the client reported.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) reason: String,
}

/// What librdkafka says of every certificate that it does not accept, whatever the cause, before
/// advice that names its own settings.
const CERTIFICATE_REFUSED: &str = "certificate verify failed";

impl Trouble {
    fn new(code: Code, reason: &str) -> Self {
        let reason = match reason.split_once(CERTIFICATE_REFUSED) {
            None => reason.to_owned(),
            Some((before, _)) => format!(
                "{before}{CERTIFICATE_REFUSED}: the broker's certificate has expired, is for \
                 another host, or is not signed by `tls.ca`"
            ),
        };
        Self { code, reason }
    }

    /// Returns whether the brokers refuse the login, so that waiting does not help. A missing right
    /// for one topic is reported with each message to it, and the others continue.
    pub(super) fn is_refusal(&self) -> bool {
        self.code != Code::TopicAuthorizationFailed && meaning(self.code) == Meaning::Credentials
    }
}

/// Receives the callbacks of librdkafka.
#[derive(Default)]
struct Context {
    trouble: Mutex<Option<Trouble>>,
    /// Says without a lock that there is an error to clear.
    troubled: AtomicBool,
    broken: AtomicBool,
    room: Notify,
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        // Everything important is also reported as an error or a delivery report.
        tracing::debug!(target: "postrider::kafka", facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        tracing::debug!(target: "postrider::kafka", ?code, reason);
        if code == Code::Fatal {
            self.broken.store(true, Ordering::Release);
        }
        let mut trouble = locked(&self.trouble);
        // `AllBrokersDown` only summarises what was reported about each broker.
        if code != Code::AllBrokersDown || trouble.is_none() {
            *trouble = Some(Trouble::new(code, reason));
            self.troubled.store(true, Ordering::Release);
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Report>;

    fn delivery(&self, result: &DeliveryResult<'_>, report: Box<Report>) {
        let answer = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Unknown)),
        };
        if answer.is_ok() && self.troubled.swap(false, Ordering::AcqRel) {
            *locked(&self.trouble) = None;
        }
        report.call.answer(report.index, answer);
        self.room.notify_waiters();
    }
}

/// Travels with a message and routes its delivery report back to the call.
pub(super) struct Report {
    call: Arc<Call>,
    index: usize,
}

/// The answers to the messages of one call.
pub(super) struct Call {
    answers: Mutex<Vec<Option<Result<(), Code>>>>,
    /// Messages without an answer, plus one while messages are still being added.
    open: AtomicUsize,
    done: Notify,
}

impl Call {
    /// Creates a call for messages with an index below `count`.
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(vec![None; count]),
            open: AtomicUsize::new(1),
            done: Notify::new(),
        })
    }

    /// Adds a message that will be answered.
    pub(super) fn expect(self: &Arc<Self>, index: usize) -> Box<Report> {
        self.open.fetch_add(1, Ordering::AcqRel);
        Box::new(Report { call: Arc::clone(self), index })
    }

    pub(super) fn answer(&self, index: usize, answer: Result<(), Code>) {
        if let Some(slot) = locked(&self.answers).get_mut(index) {
            *slot = Some(answer);
        }
        self.close_one();
    }

    /// Marks that no more messages will be added.
    pub(super) fn all_added(&self) {
        self.close_one();
    }

    fn close_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// Waits until every message is answered, for at most `time`.
    pub(super) async fn done_within(&self, time: Duration) -> bool {
        self.is_done() || tokio::time::timeout(time, self.done.notified()).await.is_ok()
    }

    pub(super) fn take_answer(&self, index: usize) -> Option<Result<(), Code>> {
        locked(&self.answers).get_mut(index).and_then(Option::take)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
