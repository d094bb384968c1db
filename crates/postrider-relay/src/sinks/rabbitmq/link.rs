//! A connection to RabbitMQ with its channels.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::options::{ConfirmSelectOptions, ExchangeDeclareOptions};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use tokio::time::Instant;

use crate::outcome::{Cause, Outcome};

/// Channels that are kept for the next call.
const IDLE_CHANNELS_MAX: usize = 8;
/// Exchanges that are remembered as existing.
const EXCHANGES_MAX: usize = 1_000;
/// Timeout of a graceful close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reply codes of AMQP.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// The address of the broker, and how to connect to it.
pub(super) struct Server {
    /// `host:port`, for messages.
    pub(super) address: String,
    uri: AMQPUri,
    ca: Option<String>,
    timeout: Duration,
}

impl Server {
    pub(super) fn new(url: &str, ca: Option<&Path>, timeout: Duration) -> Result<Self, String> {
        crate::tls::install_provider();
        // The URL is not shown: it contains the password.
        let uri: AMQPUri = url.parse().map_err(|error| {
            format!("`url` must be amqp:// or amqps://user:password@host:port/vhost: {error}")
        })?;
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|error| format!("tls.ca `{}` cannot be read: {error}", path.display()))
        };
        let address = format!("{}:{}", uri.authority.host, uri.authority.port);
        Ok(Self { address, uri, ca: ca.map(read).transpose()?, timeout })
    }

    pub(super) async fn connect(&self, deadline: Instant) -> Result<Link, Lost> {
        let properties = ConnectionProperties::default().with_connection_name("postrider".into());
        let tls = OwnedTLSConfig { identity: None, cert_chain: self.ca.clone() };
        let until = deadline.min(Instant::now() + self.timeout);
        let connecting = async {
            let runtime = lapin::runtime::default_runtime()?;
            Connection::connect_uri_with_config(self.uri.clone(), properties, tls, runtime).await
        };
        let connection = tokio::time::timeout_at(until, connecting)
            .await
            .map_err(|_| Lost::silent(&format!("{} does not answer", self.address)))?
            .map_err(|error| Lost::from(error).at(&self.address))?;
        Ok(Link { connection, idle: Mutex::default(), exchanges: Mutex::default() })
    }

    /// Describes the error for the operator, with the setting that it is about.
    pub(super) fn explain(&self, lost: &Lost) -> String {
        match lost.refusal {
            true => format!("{}; check user, password and vhost in `url`", lost.error),
            false => format!("{}; check `url` and `tls`", lost.error),
        }
    }
}

/// Why the broker did not answer.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    error: String,
    /// Whether the broker refused the login or denied a right.
    refusal: bool,
}

impl Lost {
    fn silent(error: &str) -> Self {
        Self { error: error.to_owned(), refusal: false }
    }

    fn at(self, address: &str) -> Self {
        Self { error: format!("{address}: {}", self.error), ..self }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (error, cause) = (self.error.clone(), Cause::Server);
        Outcome::Down { error, retry_after: None, credentials: self.refusal, cause }
    }
}

impl From<lapin::Error> for Lost {
    fn from(error: lapin::Error) -> Self {
        let refusal = matches!(protocol_error(&error), Some(ACCESS_REFUSED | NOT_ALLOWED));
        Self { error: error.to_string(), refusal }
    }
}

/// Returns whether the broker closed the channel because of the message, for example because it is
/// too large.
pub(super) fn is_refusal_of_message(error: &lapin::Error) -> bool {
    protocol_error(error) == Some(PRECONDITION_FAILED)
}

fn protocol_error(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// A connection.
pub(super) struct Link {
    connection: Connection,
    /// Channels in confirm mode that are not in use. Each call has its own: an error closes the
    /// channel, and other calls continue.
    idle: Mutex<Vec<Channel>>,
    /// Exchanges that existed when they were checked. Publishing to a missing one would close the
    /// channel for every other message.
    exchanges: Mutex<HashSet<String>>,
}

impl Link {
    pub(super) fn works(&self) -> bool {
        self.connection.status().connected()
    }

    /// Returns the maximum bytes of a frame that the broker accepts.
    pub(super) fn frame_bytes_max(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    pub(super) async fn channel(&self, deadline: Instant) -> Result<Channel, Lost> {
        if let Some(channel) = locked(&self.idle).pop() {
            return Ok(channel);
        }
        let opening = async {
            let channel = self.connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        match tokio::time::timeout_at(deadline, opening).await {
            Ok(opened) => opened.map_err(|error: lapin::Error| Lost::from(error)),
            Err(_) => Err(Lost::silent("the broker opens no channel")),
        }
    }

    /// Keeps a channel for the next wave, if it still works. It must have nothing in flight.
    pub(super) fn give_back(&self, channel: Channel) {
        let mut idle = locked(&self.idle);
        if idle.len() < IDLE_CHANNELS_MAX && channel.status().connected() {
            idle.push(channel);
        }
    }

    /// Forgets the known exchanges after an error of a channel: an exchange may be gone.
    pub(super) fn forget_exchanges(&self) {
        locked(&self.exchanges).clear();
    }

    pub(super) async fn has_exchange(&self, name: &str, until: Instant) -> Result<bool, Lost> {
        // The default exchange always exists, and must not be declared.
        if name.is_empty() || locked(&self.exchanges).contains(name) {
            return Ok(true);
        }
        let looking = async {
            // Checking for a missing exchange closes the channel, so a separate one is used.
            let channel = self.connection.create_channel().await?;
            let passive = ExchangeDeclareOptions { passive: true, ..Default::default() };
            let (kind, arguments) = (ExchangeKind::Direct, FieldTable::default());
            channel.exchange_declare(name.into(), kind, passive, arguments).await
        };
        let found = tokio::time::timeout_at(until, looking).await;
        match found.map_err(|_| Lost::silent("the broker does not answer"))? {
            Ok(()) => {
                let mut exchanges = locked(&self.exchanges);
                if exchanges.len() < EXCHANGES_MAX {
                    exchanges.insert(name.to_owned());
                }
                Ok(true)
            }
            Err(error) if protocol_error(&error) == Some(NOT_FOUND) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn close(&self) {
        let closing = self.connection.close(200, "closed".into());
        drop(tokio::time::timeout(CLOSE_TIMEOUT, closing).await);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
