//! Entries of Redis Streams, on a single server or a cluster.
//!
//! The events of a call that go to one stream are one transaction: a stream is in one slot of one
//! node, so either all of them are added, in order, or none. If the connection is lost before the
//! answer, it is unknown whether they were added, and they are sent again together.

mod cluster;
pub(crate) mod connection;
mod node;
mod shards;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use postrider_store::Event;
use redis::{Cmd, Pipeline, Value};

use self::connection::{Server, down, meaning};
use crate::message::envelope::{Envelope, EnvelopeSettings};
use crate::message::routes::{RouteSettings, Router};
use crate::message::template::verbatim;
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// Prefix of CloudEvents attributes among the fields of an entry.
const ATTRIBUTE_PREFIX: &str = "ce_";
/// The field of the body; the others are named like headers.
const BODY_FIELD: &str = "payload";

/// Settings of a Redis sink.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// Name in the configuration.
    pub name: String,
    /// `redis://` or, with TLS, `rediss://`. For a cluster, some of its nodes, separated by commas.
    pub url: String,
    /// Trusted certificates in PEM form; absent: those of the system.
    pub ca: Option<PathBuf>,
    /// Whether it is a cluster; absent: if the URL names several nodes.
    pub cluster: Option<bool>,
    /// Template of the stream for events that no route takes; see [`crate::message::template`].
    pub stream: Option<String>,
    /// Routes to other streams.
    pub routes: Vec<RouteSettings>,
    /// Approximate number of entries to which a stream is trimmed; absent: it is not trimmed.
    pub stream_length_max: Option<u64>,
    /// Timeout of connecting, and of an answer.
    pub timeout: Duration,
    /// Form of the message.
    pub envelope: EnvelopeSettings,
}

impl RedisSettings {
    /// Creates settings with the defaults: streams are not trimmed, 5 s.
    pub fn new(name: impl Into<String>, url: impl Into<String>, stream: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            ca: None,
            cluster: None,
            stream: Some(stream.into()),
            routes: Vec::new(),
            stream_length_max: None,
            timeout: Duration::from_secs(5),
            envelope: EnvelopeSettings::default(),
        }
    }
}

/// Delivers to streams.
pub struct RedisSink {
    name: String,
    router: Router,
    envelope: Envelope,
    stream_length_max: Option<u64>,
    server: Server,
}

/// An event as a command.
struct Entry<'a> {
    /// Index in the batch.
    number: usize,
    key: (&'a str, &'a str),
    command: Cmd,
}

/// Entries that are sent at once: for each stream, its entries in order.
type Wave<'a> = HashMap<String, Vec<Entry<'a>>>;

impl RedisSink {
    /// Checks the settings and creates the sink without connecting.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: RedisSettings) -> Result<Self, SinkError> {
        let name = settings.name.clone();
        Self::build(settings).map_err(|message| SinkError { sink: name, message })
    }

    fn build(settings: RedisSettings) -> Result<Self, String> {
        if settings.stream_length_max == Some(0) {
            return Err("`stream_length_max` = 0 would keep nothing; at least 1".to_owned());
        }
        Ok(Self {
            router: Router::new("stream", settings.stream.as_deref(), &settings.routes)?,
            envelope: Envelope::new(&settings.envelope)?,
            stream_length_max: settings.stream_length_max,
            server: Server::new(
                &settings.url,
                settings.cluster,
                settings.ca.as_deref(),
                settings.timeout,
            )?,
            name: settings.name,
        })
    }

    /// Builds stream and command of an event.
    fn prepare(&self, event: &Event) -> Result<(String, Cmd), Outcome> {
        let view = EventView::new(event);
        let stream = self.router.resolve(&view, verbatim)?;
        if stream.is_empty() {
            let error = "the event makes an empty name of a stream".to_owned();
            return Err(Outcome::NoRoute { error });
        }
        let message = self
            .envelope
            .message(&view, Cow::Borrowed(&event.payload), ATTRIBUTE_PREFIX)
            .map_err(|error| Outcome::CannotEncode { error })?;
        let mut command = redis::cmd("XADD");
        command.arg(stream.as_ref());
        if let Some(length) = self.stream_length_max {
            command.arg("MAXLEN").arg("~").arg(length);
        }
        command.arg("*");
        for (name, value) in message.headers.iter().filter(|(name, _)| name != BODY_FIELD) {
            command.arg(name.as_ref()).arg(value.as_ref());
        }
        command.arg("content-type").arg(message.content_type.as_ref());
        command.arg(BODY_FIELD).arg(message.body.as_ref());
        Ok((stream.into_owned(), command))
    }

    /// Assigns events to waves. One wave is enough, unless events of a key go to several streams
    /// and their order is to be kept: then each change of stream waits for the previous wave.
    fn waves<'a>(&self, batch: &Batch<'a>, outcomes: &mut [Outcome]) -> Vec<Wave<'a>> {
        let mut waves: Vec<Wave<'a>> = Vec::new();
        let mut last: HashMap<(&str, &str), Option<(usize, String)>> = HashMap::new();
        for (number, event) in batch.events.iter().enumerate() {
            let key = event.key();
            if batch.keep_order && last.get(&key) == Some(&None) {
                continue;
            }
            let (stream, command) = match self.prepare(event) {
                Ok(prepared) => prepared,
                Err(outcome) => {
                    outcomes[number] = outcome;
                    last.insert(key, None);
                    continue;
                }
            };
            let wave = match last.get(&key) {
                Some(Some((wave, before))) if batch.keep_order => {
                    wave + usize::from(*before != stream)
                }
                _ => 0,
            };
            if batch.keep_order {
                last.insert(key, Some((wave, stream.clone())));
            }
            if waves.len() == wave {
                waves.push(Wave::new());
            }
            waves[wave].entry(stream).or_default().push(Entry { number, key, command });
        }
        waves
    }

    /// Adds the entries of one stream and returns their outcomes.
    async fn add(
        &self,
        stream: &str,
        entries: Vec<Entry<'_>>,
        batch: &Batch<'_>,
    ) -> Vec<(usize, Outcome)> {
        let all = |outcome: Outcome| {
            entries.iter().map(|entry| (entry.number, outcome.clone())).collect::<Vec<_>>()
        };
        if !batch.may_start() {
            return all(Outcome::Untried);
        }
        let mut pipeline = Pipeline::with_capacity(entries.len());
        if entries.len() > 1 {
            pipeline.atomic();
        }
        pipeline.ignore_errors();
        for entry in &entries {
            pipeline.add_command(entry.command.clone());
        }
        let answers = self.server.run(stream, &pipeline, batch.deadline).await;
        match answers {
            Ok(answers) if answers.len() == entries.len() => {
                let answers = answers.into_iter().map(|answer| match answer {
                    Value::ServerError(error) => meaning(&error.into()),
                    // The id of the entry.
                    Value::BulkString(_) => Outcome::Delivered,
                    other => down(format!("not the id of an entry: {other:?}")),
                });
                entries.iter().map(|entry| entry.number).zip(answers).collect()
            }
            Ok(answers) => {
                all(down(format!("{} answers for {} entries", answers.len(), entries.len())))
            }
            Err(outcome) => all(outcome),
        }
    }
}

#[async_trait]
impl Sink for RedisSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        if !self.server.is_cluster() {
            return Cow::Borrowed(self.server.nodes());
        }
        let stream = self.router.resolve(&EventView::new(event), verbatim);
        stream.map_or(Cow::Borrowed(self.server.nodes()), |stream| self.server.part_of(&stream))
    }

    fn only_destination(&self) -> Option<&str> {
        (!self.server.is_cluster()).then(|| self.server.nodes())
    }

    fn server(&self) -> Option<&str> {
        self.server.is_cluster().then(|| self.server.nodes())
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let batch = &batch;
        let mut outcomes = vec![Outcome::Untried; batch.events.len()];
        let mut stopped: HashSet<(&str, &str)> = HashSet::new();
        for wave in self.waves(batch, &mut outcomes) {
            let mut streams = wave;
            streams.retain(|_, entries| {
                entries.retain(|entry| !stopped.contains(&entry.key));
                !entries.is_empty()
            });
            let answers =
                join_all(streams.into_iter().map(|(stream, entries)| async move {
                    self.add(&stream, entries, batch).await
                }));
            for (number, outcome) in answers.await.into_iter().flatten() {
                if outcome != Outcome::Delivered {
                    stopped.insert(batch.events[number].key());
                }
                outcomes[number] = outcome;
            }
        }
        outcomes
    }

    async fn check(&self) -> Result<(), SinkError> {
        let fail = |message: String| SinkError { sink: self.name.clone(), message };
        self.server.ping().await.map_err(fail)?;
        for (setting, template) in self.router.templates() {
            let Some(stream) = template.fixed() else { continue };
            let kind = self.server.type_of(stream).await.map_err(fail)?;
            if !matches!(kind.as_str(), "stream" | "none") {
                return Err(fail(format!(
                    "{setting} = `{stream}` is the name of a {kind} there; choose another name"
                )));
            }
        }
        Ok(())
    }

    async fn close(&self) {
        self.server.disconnect().await;
    }
}
