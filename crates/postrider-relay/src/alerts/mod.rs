//! Alerts to operators.
//!
//! There are two kinds. Something **happened** (a dead letter): [`Alerts::raise`]. A condition
//! **holds** (too many events wait): [`Alerts::begin`], and [`Alerts::end`] when it is over, both
//! called at every check; only changes are sent. The [`Dispatcher`] combines repeated alerts, and
//! each channel has a queue of its own that retries until the message is sent.

#[cfg(feature = "http")]
mod discord;
mod dispatcher;
#[cfg(feature = "email")]
mod email;
mod log;
mod queue;
pub(crate) mod reachability;
mod registry;
#[cfg(feature = "http")]
mod slack;
mod text;
#[cfg(feature = "http")]
mod webhook;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider_store::Event;
use serde::{Deserialize, Serialize, Serializer};

#[cfg(feature = "http")]
pub use discord::DiscordChannel;
pub use dispatcher::{AlertSettings, Alerts, Dispatcher};
#[cfg(feature = "email")]
pub use email::{EmailChannel, EmailSettings, MailSecurity};
pub use log::LogChannel;
pub use registry::{AlertEntry, AlertLists, AlertRegistry};
#[cfg(feature = "http")]
pub use slack::SlackChannel;
#[cfg(feature = "http")]
pub use webhook::WebhookChannel;

/// How severe an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    #[default]
    Info,
    /// Needs attention today.
    Warning,
    /// Needs attention now.
    Critical,
}

impl Severity {
    /// Returns the spelling in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// An alert, before it becomes a message.
#[derive(Debug, Clone)]
pub struct Alert {
    /// How severe it is.
    pub severity: Severity,
    /// Subject of the alert; alerts of the same kind are combined within the cool-down.
    pub kind: String,
    /// Summary in one sentence.
    pub title: String,
    /// Names and values.
    pub fields: Vec<(&'static str, String)>,
    /// The whole event, for channels that may carry payloads. Such an alert is sent before others,
    /// because it may be the only copy of the event.
    pub event: Option<Box<Event>>,
}

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// Something happened, or a condition began.
    Raised,
    /// A condition is over.
    Resolved,
    /// Periodic report about the outboxes.
    Report,
    /// Test of the channels.
    Test,
}

/// A message that a channel sends.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// Identity of the message; the same for every attempt.
    pub id: String,
    /// When it was written. A channel that was down gets it later.
    pub at: DateTime<Utc>,
    /// Why it is sent.
    pub state: MessageState,
    /// How severe it is, or was.
    pub severity: Severity,
    /// Subject of the alert.
    pub kind: String,
    /// Summary in one sentence.
    pub title: String,
    /// Number of alerts that it combines.
    pub count: u64,
    /// Names and values.
    #[serde(serialize_with = "as_object")]
    pub fields: Vec<(&'static str, String)>,
    /// The whole event, on channels that may carry payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Box<Event>>,
}

impl Message {
    /// Creates a message about an alert, dated now. Its texts are single lines: values come from
    /// events, and a line break in one could forge other fields. The event itself is unchanged.
    pub fn new(state: MessageState, alert: Alert, count: u64) -> Self {
        let Alert { severity, kind, title, fields, event } = alert;
        let (kind, title) = (text::single_line(kind), text::single_line(title));
        let fields = fields.into_iter().map(|(name, value)| (name, text::single_line(value)));
        let fields = fields.collect();
        let (id, at) = (uuid::Uuid::new_v4().to_string(), Utc::now());
        Self { id, at, state, severity, kind, title, count, fields, event }
    }

    /// Creates the message of `postrider alert test`.
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

/// Why a channel did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSent {
    /// The error in one sentence, without secrets.
    pub error: String,
    /// Whether the receiver refused this message, and will refuse it again.
    pub refused: bool,
}

impl NotSent {
    /// Creates an error after which another attempt may succeed.
    pub fn for_now(error: impl Into<String>) -> Self {
        Self { error: error.into(), refused: false }
    }
}

/// A channel to operators.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Returns the name used in the configuration, in metrics and messages.
    fn name(&self) -> &str;

    /// Returns the recipient as shown to operators: a host or an address, without secrets.
    fn target(&self) -> &str;

    /// Sends one message and returns the receiver's answer. The caller retries.
    ///
    /// # Errors
    /// Says why the message was not sent.
    async fn send(&self, message: &Message) -> Result<String, NotSent>;
}

/// A channel, and which messages it gets.
pub struct Subscription {
    /// The channel.
    pub channel: Box<dyn Channel>,
    /// Alerts below this severity are not sent.
    pub severity_min: Severity,
    /// Whether whole events may be sent over this channel.
    pub payloads: bool,
    /// Whether it gets the report.
    pub reports: bool,
}

impl Subscription {
    /// Creates a subscription to every alert, without payloads or reports.
    pub fn new(channel: impl Channel) -> Self {
        Self {
            channel: Box::new(channel),
            severity_min: Severity::Info,
            payloads: false,
            reports: false,
        }
    }

    /// Returns the version of a message that the channel gets; `None` if it gets none.
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
