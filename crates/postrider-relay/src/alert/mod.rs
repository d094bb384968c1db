//! Alerts: somebody must know.
//!
//! Two kinds of things are told. Something **happened** (a dead letter): [`Alerts::raise`]. Something
//! **holds** (too much waits): [`Alerts::begin`], and [`Alerts::end`] when it is over, as often as
//! one looks; only changes are told. The [`Dispatcher`] sums up what repeats, and each channel has a
//! queue of its own that tries again until the message is through.

mod book;
#[cfg(feature = "http")]
mod discord;
mod dispatcher;
#[cfg(feature = "email")]
mod email;
mod log;
mod queue;
#[cfg(feature = "http")]
mod slack;
mod text;
#[cfg(feature = "http")]
mod webhook;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Event;
use serde::{Deserialize, Serialize, Serializer};

pub use book::{AlertBook, AlertEntry, AlertLists};
#[cfg(feature = "http")]
pub use discord::DiscordChannel;
pub use dispatcher::{AlertSettings, Alerts, Dispatcher};
#[cfg(feature = "email")]
pub use email::{EmailChannel, EmailSettings, MailSecurity};
pub use log::LogChannel;
#[cfg(feature = "http")]
pub use slack::SlackChannel;
#[cfg(feature = "http")]
pub use webhook::WebhookChannel;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    #[default]
    Info,
    /// Look at it today.
    Warning,
    /// Look at it now.
    Critical,
}

impl Severity {
    /// Spelling in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Something to tell.
#[derive(Debug, Clone)]
pub struct Alert {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about; alerts with the same kind are summed up within the cool-down.
    pub kind: String,
    /// In a sentence.
    pub title: String,
    /// Names and values.
    pub fields: Vec<(&'static str, String)>,
    /// The whole event, for channels that may carry payloads. Such an alert goes before others: it
    /// may be the event's only copy.
    pub event: Option<Box<Event>>,
}

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// It happened, or holds from now on.
    Raised,
    /// It is over.
    Resolved,
    /// How the outboxes are doing.
    Report,
    /// Somebody wants to see whether messages arrive.
    Test,
}

/// What a channel sends to people.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// Identity; the same at each try.
    pub id: String,
    /// When it was written. A channel that was down gets it later.
    pub at: DateTime<Utc>,
    /// Why it is sent.
    pub state: MessageState,
    /// How bad it is, or was.
    pub severity: Severity,
    /// What it is about.
    pub kind: String,
    /// In a sentence.
    pub title: String,
    /// How many alerts it stands for.
    pub count: u64,
    /// Names and values.
    #[serde(serialize_with = "as_object")]
    pub fields: Vec<(&'static str, String)>,
    /// The whole event, on channels that may carry payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<Event>>,
}

impl Message {
    /// A message about an alert, written now.
    pub fn new(state: MessageState, alert: Alert, count: u64) -> Self {
        let Alert { severity, kind, title, fields, event } = alert;
        let (id, at) = (uuid::Uuid::new_v4().to_string(), Utc::now());
        Self { id, at, state, severity, kind, title, count, fields, event }
    }

    /// The message of `postrider alert test`.
    pub fn test(host: &str) -> Self {
        let alert = Alert {
            severity: Severity::Info,
            kind: "test".to_owned(),
            title: "Test of Postrider's alerts: nothing is wrong".to_owned(),
            fields: vec![("sent from", host.to_owned())],
            event: None,
        };
        Self::new(MessageState::Test, alert, 1)
    }
}

fn as_object<S: Serializer>(
    fields: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

/// Why a channel did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSent {
    /// In a sentence, without secrets.
    pub error: String,
    /// The other side refused this message, and will refuse it again.
    pub refused: bool,
}

impl NotSent {
    /// Another try may succeed.
    pub fn for_now(error: impl Into<String>) -> Self {
        Self { error: error.into(), refused: false }
    }
}

/// A way to people.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Name in the configuration, in metrics and messages.
    fn name(&self) -> &str;

    /// Whom it reaches, for people: a host, an address; no secret.
    fn target(&self) -> &str;

    /// Sends one message; answers what the other side said. The caller tries again.
    ///
    /// # Errors
    /// Says why.
    async fn send(&self, message: &Message) -> Result<String, NotSent>;
}

/// A channel, and what it gets.
pub struct Subscription {
    /// The channel.
    pub channel: Box<dyn Channel>,
    /// Alerts below this are not sent.
    pub severity_min: Severity,
    /// Whether whole events may be sent this way.
    pub payloads: bool,
    /// Whether it gets the report.
    pub reports: bool,
}

impl Subscription {
    /// Every alert, no payloads, no reports.
    pub fn new(channel: impl Channel) -> Self {
        Self {
            channel: Box::new(channel),
            severity_min: Severity::Info,
            payloads: false,
            reports: false,
        }
    }

    /// What the channel gets of a message; `None` is nothing.
    fn share(&self, message: &Message) -> Option<Message> {
        let wanted = match message.state {
            MessageState::Report => self.reports,
            MessageState::Test => true,
            MessageState::Raised | MessageState::Resolved => message.severity >= self.severity_min,
        };
        wanted.then(|| {
            let event = message.event.clone().filter(|_| self.payloads);
            Message { event, ..message.clone() }
        })
    }
}
