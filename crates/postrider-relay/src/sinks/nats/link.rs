//! A connection to NATS with its JetStream context.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, HeaderMap, ServerAddr, Subject};
use tokio::sync::watch;
use tokio::time::Instant;

use super::NatsSettings;
use crate::outcome::{Cause, Outcome};

/// Acknowledgements awaited at the same time: enough for several batches of the largest size.
const ACKS_MAX: usize = 65_536;
/// Timeout of a graceful close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The addresses of the servers, and how to connect to them.
pub(super) struct Server {
    servers: Vec<ServerAddr>,
    /// The addresses without passwords, for messages.
    pub(super) addresses: String,
    options: NatsSettings,
}

impl Server {
    pub(super) fn new(settings: &NatsSettings) -> Result<Self, String> {
        crate::tls::install_provider();
        let parse = |url: &str| {
            // The URL is not shown: it may contain a password.
            url.trim().parse::<ServerAddr>().map_err(|error| {
                format!("`url` must be nats:// or tls://user:password@host:port: {error}")
            })
        };
        let servers = settings.url.split(',').map(parse).collect::<Result<Vec<_>, _>>()?;
        for (name, path) in [("credentials", &settings.credentials), ("tls.ca", &settings.ca)] {
            let Some(path) = path else { continue };
            std::fs::File::open(path)
                .map_err(|error| format!("{name} `{}` cannot be read: {error}", path.display()))?;
        }
        let address = |server: &ServerAddr| format!("{}:{}", server.host(), server.port());
        let addresses = servers.iter().map(address).collect::<Vec<_>>().join(",");
        Ok(Self { servers, addresses, options: settings.clone() })
    }

    pub(super) async fn connect(&self, deadline: Instant) -> Result<Link, Lost> {
        let timeout = self.options.timeout;
        let (lost, is_lost) = watch::channel(false);
        let mut options = ConnectOptions::new()
            .name("postrider")
            .connection_timeout(timeout)
            // After a loss the next call connects anew: whatever a reconnected client would still
            // send belongs to calls that have ended.
            .max_reconnects(1)
            .event_callback(move |event| {
                use async_nats::Event::{Closed, Disconnected};
                if matches!(event, Disconnected | Closed) {
                    lost.send_replace(true);
                }
                std::future::ready(())
            });
        if let Some(ca) = &self.options.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some(path) = &self.options.credentials {
            let read = std::fs::read_to_string(path).and_then(|text| options.credentials(&text));
            options = read.map_err(|error| Lost {
                error: format!("credentials `{}`: {error}", path.display()),
                setting: "credentials",
                refusal: true,
            })?;
        }
        let until = deadline.min(Instant::now() + timeout);
        let client = tokio::time::timeout_at(until, options.connect(&self.servers[..]))
            .await
            .map_err(|_| self.lost("no answer in time", "url", false))?
            .map_err(|error| self.refused(&error))?;
        let jetstream = ContextBuilder::new()
            .timeout(timeout)
            .ack_timeout(timeout)
            .max_ack_inflight(ACKS_MAX)
            .build(client);
        Ok(Link { jetstream, is_lost })
    }

    fn refused(&self, error: &ConnectError) -> Lost {
        let text = error.to_string();
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                self.lost(&text, "url` or `credentials", true)
            }
            ConnectErrorKind::Tls => self.lost(&text, "tls", false),
            _ => self.lost(&text, "url", false),
        }
    }

    fn lost(&self, error: &str, setting: &'static str, refusal: bool) -> Lost {
        Lost { error: format!("{}: {error}", self.addresses), setting, refusal }
    }
}

/// Why the servers did not answer.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    error: String,
    /// The setting to check.
    setting: &'static str,
    /// Whether the server refused the login or denied a right.
    refusal: bool,
}

impl Lost {
    fn silent(error: impl Into<String>) -> Self {
        Self { error: error.into(), setting: "url", refusal: false }
    }

    /// Describes the error for the operator, with the setting that it is about.
    pub(super) fn explain(&self) -> String {
        format!("{}; check `{}`", self.error, self.setting)
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (error, cause) = (self.error.clone(), Cause::Server);
        Outcome::Down { error, retry_after: None, credentials: self.refusal, cause }
    }
}

/// The result of a message.
pub(super) enum Answer {
    Stored,
    /// The stream had it already: its first acknowledgement was lost.
    Repeat,
    /// Its stream will never accept it.
    Refused(String),
    NoStream,
    /// Its stream does not accept any message now.
    Unready(String),
    /// It may have arrived.
    Lost(Lost),
}

/// A connection.
pub(super) struct Link {
    jetstream: Context,
    is_lost: watch::Receiver<bool>,
}

impl Link {
    pub(super) fn works(&self) -> bool {
        !*self.is_lost.borrow() && self.jetstream.client().connection_state() == State::Connected
    }

    pub(super) async fn publish(
        &self,
        subject: Subject,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Answer {
        let publishing = async {
            let sent =
                self.jetstream.publish_with_headers(subject.clone(), headers, body.into()).await;
            match sent {
                Ok(acknowledgement) => acknowledgement.await,
                Err(error) => Err(error),
            }
        };
        let mut is_lost = self.is_lost.clone();
        let answer = tokio::select! {
            answer = publishing => answer,
            _ = is_lost.wait_for(|lost| *lost) => {
                return Answer::Lost(Lost::silent("the connection was lost"));
            }
        };
        match answer {
            Ok(acknowledged) if acknowledged.duplicate => Answer::Repeat,
            Ok(_) => Answer::Stored,
            Err(error) => self.meaning(&subject, &error).await,
        }
    }

    async fn meaning(&self, subject: &Subject, error: &PublishError) -> Answer {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Answer::Refused(error.to_string()),
            PublishErrorKind::TimedOut => Answer::Unready("no answer in time".to_owned()),
            // No stream answered for the subject. It may also have one that is just starting.
            PublishErrorKind::StreamNotFound => match self.has_stream(subject).await {
                Ok(false) => Answer::NoStream,
                Ok(true) => Answer::Unready("the stream is not ready".to_owned()),
                Err(lost) => Answer::Lost(lost),
            },
            _ => match refusal(error) {
                Some(
                    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM
                    | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
                ) => {
                    Answer::Refused(format!("the message is larger than its stream takes: {error}"))
                }
                Some(_) => Answer::Unready(error.to_string()),
                None => Answer::Lost(Lost::silent(error.to_string())),
            },
        }
    }

    /// Asks JetStream whether a stream takes this subject.
    pub(super) async fn has_stream(&self, subject: &str) -> Result<bool, Lost> {
        use async_nats::jetstream::context::GetStreamByNameErrorKind::NotFound;
        match self.jetstream.stream_by_subject(subject).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == NotFound => Ok(false),
            Err(error) => Err(Lost::silent(format!("JetStream does not answer: {error}"))),
        }
    }

    pub(super) async fn close(&self) {
        let client = self.jetstream.client();
        drop(tokio::time::timeout(CLOSE_TIMEOUT, client.drain()).await);
    }
}

/// Returns the stream's own reason for not accepting a message.
fn refusal(error: &PublishError) -> Option<ErrorCode> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<jetstream::Error>().map(jetstream::Error::error_code)
}
