//! Alerts: somebody must know.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use postrider::Event;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::telemetry;

/// Alerts waiting to be sent. More are counted as failed: an alert must never stop the relay.
const QUEUE_MAX: usize = 1_000;
/// Tries per alert and channel.
const TRIES_MAX: u32 = 3;
/// Kinds of alerts remembered for the cool-down.
const KINDS_MAX: usize = 10_000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Worth knowing.
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
    /// The whole event, for channels that may carry payloads.
    pub event: Option<Box<Event>>,
}

/// A way to people.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Name in metrics and messages.
    fn name(&self) -> &str;

    /// Whether payloads may be sent this way.
    fn carries_payloads(&self) -> bool;

    /// Sends one alert.
    ///
    /// # Errors
    /// Says why; the caller retries.
    async fn send(&self, alert: &Alert) -> Result<(), String>;
}

/// The log. It carries no payloads.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogChannel;

#[async_trait]
impl Channel for LogChannel {
    fn name(&self) -> &str {
        "log"
    }

    fn carries_payloads(&self) -> bool {
        false
    }

    async fn send(&self, alert: &Alert) -> Result<(), String> {
        let fields = fields_text(&alert.fields);
        match alert.severity {
            Severity::Info => {
                tracing::info!(target: "postrider::alert", "{}: {fields}", alert.title)
            }
            Severity::Warning => {
                tracing::warn!(target: "postrider::alert", "{}: {fields}", alert.title);
            }
            Severity::Critical => {
                tracing::error!(target: "postrider::alert", "{}: {fields}", alert.title);
            }
        }
        Ok(())
    }
}

fn fields_text(fields: &[(&'static str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// A Discord webhook.
#[cfg(feature = "http")]
pub struct DiscordChannel {
    client: reqwest::Client,
    url: String,
    payloads: bool,
}

#[cfg(feature = "http")]
impl DiscordChannel {
    /// A channel to that webhook; `payloads` allows it to carry whole events.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn new(url: String, payloads: bool) -> Result<Self, String> {
        let client = crate::sinks::http::client(Duration::from_secs(10))?;
        Ok(Self { client, url, payloads })
    }
}

#[cfg(feature = "http")]
#[async_trait]
impl Channel for DiscordChannel {
    fn name(&self) -> &str {
        "discord"
    }

    fn carries_payloads(&self) -> bool {
        self.payloads
    }

    async fn send(&self, alert: &Alert) -> Result<(), String> {
        /// Discord takes 2,000 characters of content.
        const CONTENT_CHARS_MAX: usize = 2_000;
        let mut content = format!("**[{}] {}**\n", alert.severity.as_str(), alert.title);
        for (name, value) in &alert.fields {
            content.push_str(&format!("{name}: {value}\n"));
        }
        let mut files = String::new();
        if let Some(event) = &alert.event {
            files = serde_json::to_string(event).map_err(|error| error.to_string())?;
        }
        let whole = format!("{content}```json\n{files}\n```");
        // An event that does not fit travels as an attachment, so that none of it is cut off.
        let request = if files.is_empty() || whole.chars().count() <= CONTENT_CHARS_MAX {
            let text = if files.is_empty() { content } else { whole };
            let text: String = text.chars().take(CONTENT_CHARS_MAX).collect();
            self.client
                .post(&self.url)
                .header("content-type", "application/json")
                .body(serde_json::json!({ "content": text }).to_string())
        } else {
            let text: String = content.chars().take(CONTENT_CHARS_MAX).collect();
            let (kind, body) = attachment(&text, &files);
            self.client.post(&self.url).header("content-type", kind).body(body)
        };
        // Without the URL: it is a secret.
        let answer = request.send().await.map_err(|error| error.without_url().to_string())?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("Discord answered {status}")),
        }
    }
}

/// A multipart form with a message and one JSON file.
#[cfg(feature = "http")]
fn attachment(content: &str, event: &str) -> (String, String) {
    let boundary = uuid::Uuid::new_v4().simple().to_string();
    let message = serde_json::json!({ "content": content });
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\
         Content-Type: application/json\r\n\r\n{message}\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"files[0]\"; \
         filename=\"event.json\"\r\nContent-Type: application/json\r\n\r\n{event}\r\n\
         --{boundary}--\r\n"
    );
    (format!("multipart/form-data; boundary={boundary}"), body)
}

/// Takes alerts from anywhere in the relay.
#[derive(Debug, Clone)]
pub struct Alerts {
    sender: mpsc::Sender<Alert>,
}

impl Alerts {
    /// Hands an alert over. Never waits; an overflow is counted and logged.
    pub fn raise(&self, alert: Alert) {
        if let Err(error) = self.sender.try_send(alert) {
            metrics::counter!(telemetry::ALERTS_FAILED, "channel" => "queue").increment(1);
            tracing::error!(%error, "alert dropped: the queue is full");
        }
    }
}

/// Sends alerts to the channels, with a cool-down per kind.
pub struct Dispatcher {
    receiver: mpsc::Receiver<Alert>,
    channels: Vec<Box<dyn Channel>>,
    cool_down: Duration,
    kinds: HashMap<String, Kind>,
}

struct Kind {
    sent_at: Instant,
    /// The last one that was held back, and how many there were.
    held_back: Option<(Alert, u64)>,
}

impl Dispatcher {
    /// A dispatcher and the handle that feeds it.
    pub fn new(channels: Vec<Box<dyn Channel>>, cool_down: Duration) -> (Alerts, Self) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Alerts { sender }, Self { receiver, channels, cool_down, kinds: HashMap::new() })
    }

    /// Runs until stopped, then sends what is left.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(
            self.cool_down.clamp(Duration::from_millis(1), Duration::from_secs(1)),
        );
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = tick.tick() => self.sum_up(false).await,
                alert = self.receiver.recv() => match alert {
                    Some(alert) => self.take(alert).await,
                    None => break,
                },
            }
        }
        while let Ok(alert) = self.receiver.try_recv() {
            self.take(alert).await;
        }
        self.sum_up(true).await;
    }

    /// The first of a kind is sent at once; further ones within the cool-down are counted.
    async fn take(&mut self, alert: Alert) {
        let cool_down = self.cool_down;
        match self.kinds.get_mut(&alert.kind) {
            // Also when the cool-down just ended: the next tick tells of all of them together.
            Some(kind) if kind.sent_at.elapsed() < cool_down || kind.held_back.is_some() => {
                let count = kind.held_back.as_ref().map_or(0, |(_, count)| *count) + 1;
                kind.held_back = Some((alert, count));
            }
            _ => {
                let kind = Kind { sent_at: Instant::now(), held_back: None };
                if self.kinds.len() < KINDS_MAX {
                    self.kinds.insert(alert.kind.clone(), kind);
                }
                self.send(&alert).await;
            }
        }
    }

    /// Sends one message for all that were held back, once their cool-down is over.
    async fn sum_up(&mut self, all: bool) {
        let cool_down = self.cool_down;
        let mut due = Vec::new();
        self.kinds.retain(|_, kind| {
            if !all && kind.sent_at.elapsed() < cool_down {
                return true;
            }
            due.extend(kind.held_back.take());
            false
        });
        for (mut alert, count) in due {
            if count > 1 {
                alert.title = format!("{} (and {} more like it)", alert.title, count - 1);
            }
            self.kinds
                .insert(alert.kind.clone(), Kind { sent_at: Instant::now(), held_back: None });
            self.send(&alert).await;
        }
    }

    async fn send(&self, alert: &Alert) {
        for channel in &self.channels {
            let mut alert = alert.clone();
            if !channel.carries_payloads() {
                alert.event = None;
            }
            let mut tries = 0;
            while let Err(error) = channel.send(&alert).await {
                tries += 1;
                let channel = channel.name().to_owned();
                if tries == TRIES_MAX {
                    metrics::counter!(telemetry::ALERTS_FAILED, "channel" => channel.clone())
                        .increment(1);
                    tracing::error!(channel, error, title = alert.title, "alert not sent");
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200) * tries).await;
            }
            metrics::counter!(telemetry::ALERTS, "channel" => channel.name().to_owned())
                .increment(u64::from(tries < TRIES_MAX));
        }
    }
}
