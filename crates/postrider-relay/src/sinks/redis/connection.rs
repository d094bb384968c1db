//! The connection to a server or a cluster, and what its errors mean.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult,
    TlsCertificates, Value,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::shards::Shards;
use crate::sink::{Cause, Outcome};

/// How often a cluster's client follows a slot that has moved, within the time of one answer.
const REDIRECTS_MAX: u32 = 3;
/// Times that a node may take to answer which all of them together may take.
const CLUSTER_CONNECT_TIMES: u32 = 4;
/// How often a cluster is asked for its parts, each within an eighth of the time of an answer.
const SHARDS_TRIES_MAX: u32 = 3;

/// A server or a cluster, connected when first needed and again when the connection broke.
pub(crate) struct Server {
    client: AnyClient,
    nodes: String,
    /// Of a cluster.
    shards: Option<Shards>,
    timeout: Duration,
    /// With its number, so that a failure of an older one does not end a newer one.
    connection: Mutex<(u64, Option<AnyConnection>)>,
    /// Held by the call that makes a new connection to a cluster while others use the old one.
    renewal: Mutex<()>,
}

enum AnyClient {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// Cloning it shares the connection: commands of several calls are interleaved on the wire.
#[derive(Clone)]
enum AnyConnection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// Reads the URL; connects to nothing.
    pub(crate) fn new(
        url: &str,
        cluster: Option<bool>,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, String> {
        crate::tls::install_provider();
        // No more than this: the URL may carry a password.
        let wrong = || {
            "`url` is none like redis://user:password@host:6379 or, with TLS, rediss://…; of a \
             cluster: redis://host1:6379,host2:6379"
                .to_owned()
        };
        let (urls, nodes) = urls(url).ok_or_else(wrong)?;
        let trusted = ca.map(|ca| trusted(ca, url)).transpose()?;
        let client = match cluster.unwrap_or(urls.len() > 1) {
            false if urls.len() > 1 => {
                return Err("`url` names several nodes, but `cluster` is false".to_owned());
            }
            false => {
                let client = match trusted {
                    Some(certificates) => Client::build_with_tls(url, certificates),
                    None => Client::open(url),
                };
                AnyClient::Single(Box::new(client.map_err(|_| wrong())?))
            }
            true => {
                let mut builder = ClusterClientBuilder::new(urls)
                    .retries(REDIRECTS_MAX)
                    .connection_timeout(timeout)
                    .response_timeout(timeout)
                    .overall_response_timeout(Some(timeout));
                if let Some(certificates) = trusted {
                    builder = builder.certs(certificates);
                }
                AnyClient::Cluster(Box::new(builder.build().map_err(|_| wrong())?))
            }
        };
        let shards = matches!(client, AnyClient::Cluster(_)).then(Shards::default);
        let (connection, renewal) = (Mutex::new((0, None)), Mutex::default());
        Ok(Self { client, nodes, shards, timeout, connection, renewal })
    }

    /// Hosts and ports, without what is secret.
    pub(crate) fn nodes(&self) -> &str {
        &self.nodes
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.shards.is_some()
    }

    /// What fails together with this stream: the part of a cluster that it is in, as far as known.
    pub(super) fn part_of(&self, stream: &str) -> Cow<'_, str> {
        let range = self.shards.as_ref().and_then(|shards| shards.range_of(stream));
        match range {
            Some((first, last)) => Cow::Owned(format!("{} slots {first}-{last}", self.nodes)),
            None => Cow::Borrowed(&self.nodes),
        }
    }

    /// One answer per command, or what that means for all of them.
    pub(crate) async fn run(
        &self,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Outcome> {
        let late = || down("no answer in time".to_owned());
        let until = deadline.min(Instant::now() + self.connect_time());
        let connected = tokio::time::timeout_at(until, self.connected()).await;
        let (number, connection) = connected
            .map_err(|_| unreachable(late()))?
            .map_err(|error| unreachable(refused(&error)))?;
        let until = deadline.min(Instant::now() + self.timeout);
        let answer = match connection {
            AnyConnection::Single(mut connection) => {
                tokio::time::timeout_at(until, pipeline.query_async(&mut connection)).await
            }
            AnyConnection::Cluster(mut connection) => {
                tokio::time::timeout_at(until, pipeline.query_async(&mut connection)).await
            }
        };
        match answer {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => {
                let error = first_cause(error);
                if is_stale(&error) {
                    self.renew(number, deadline).await;
                }
                Err(meaning(&error))
            }
            // A connection that says nothing may say nothing for ever.
            Err(_) => {
                self.renew(number, deadline).await;
                Err(late())
            }
        }
    }

    /// Whether it answers.
    pub(crate) async fn ping(&self) -> Result<(), String> {
        self.ask::<String>(redis::cmd("PING")).await.map(drop)
    }

    /// What a key holds; `none` if it does not exist.
    pub(super) async fn type_of(&self, key: &str) -> Result<String, String> {
        let mut command = redis::cmd("TYPE");
        command.arg(key);
        self.ask(command).await
    }

    pub(super) async fn disconnect(&self) {
        self.connection.lock().await.1 = None;
    }

    async fn ask<T: FromRedisValue>(&self, command: redis::Cmd) -> Result<T, String> {
        let asked = async {
            match self.connected().await?.1 {
                AnyConnection::Single(mut connection) => command.query_async(&mut connection).await,
                AnyConnection::Cluster(mut connection) => {
                    command.query_async(&mut connection).await
                }
            }
        };
        let answer: Result<RedisResult<T>, _> = tokio::time::timeout(self.timeout, asked).await;
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        Err(format!("{} does not answer: {error}; check `url` and `cluster`", self.nodes))
    }

    /// The connection, made if there is none; the others wait for it.
    async fn connected(&self) -> RedisResult<(u64, AnyConnection)> {
        let mut held = self.connection.lock().await;
        if let (number, Some(connection)) = &*held {
            return Ok((*number, connection.clone()));
        }
        let connection = self.connect().await?;
        *held = (held.0 + 1, Some(connection.clone()));
        Ok((held.0, connection))
    }

    async fn connect(&self) -> RedisResult<AnyConnection> {
        Ok(match &self.client {
            AnyClient::Single(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(self.timeout))
                    .set_response_timeout(Some(self.timeout));
                let connected = client.get_multiplexed_async_connection_with_config(&config).await;
                AnyConnection::Single(connected?)
            }
            AnyClient::Cluster(client) => {
                let mut connection = client.get_async_connection().await?;
                self.read_shards(&mut connection).await;
                AnyConnection::Cluster(connection)
            }
        })
    }

    /// The client of a cluster asks all nodes, and those again that another one names. One that
    /// does not answer must not use up the time of all.
    fn connect_time(&self) -> Duration {
        if self.is_cluster() { self.timeout * CLUSTER_CONNECT_TIMES } else { self.timeout }
    }

    /// Asks a few times: the client asks any node, and one of them may not answer. Without an
    /// answer the parts are those that were known before.
    async fn read_shards(&self, connection: &mut ClusterConnection) {
        let Some(shards) = &self.shards else { return };
        for _ in 0..SHARDS_TRIES_MAX {
            let read = tokio::time::timeout(self.timeout / 8, shards.read(connection)).await;
            if matches!(read, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// After a failure. A server gets a new connection with the next call. Of a cluster, one node
    /// may be down: calls to the others go on with the old connection until there is a new one.
    async fn renew(&self, number: u64, deadline: Instant) {
        if self.shards.is_none() {
            return self.exchange(number, None).await;
        }
        // Another call is at it, or there is no time to find out which nodes can be reached.
        let Ok(_renewal) = self.renewal.try_lock() else { return };
        let until = deadline.min(Instant::now() + self.connect_time());
        if self.connection.lock().await.0 != number || Instant::now() >= until {
            return;
        }
        let made = tokio::time::timeout_at(until, self.connect()).await;
        self.exchange(number, made.ok().and_then(Result::ok)).await;
    }

    async fn exchange(&self, number: u64, new: Option<AnyConnection>) {
        let mut held = self.connection.lock().await;
        if held.0 == number {
            *held = (number + 1, new);
        }
    }
}

/// The URL of each node, and all of them without secrets.
fn urls(url: &str) -> Option<(Vec<String>, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
    let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let urls = hosts.iter().map(|host| format!("{scheme}://{login}{host}{path}")).collect();
    let known = matches!(scheme, "redis" | "rediss") && !hosts.is_empty();
    known.then(|| (urls, hosts.join(",")))
}

/// The certificates to trust, of a file in PEM form.
fn trusted(ca: &Path, url: &str) -> Result<TlsCertificates, String> {
    if !url.starts_with("rediss://") {
        return Err("`tls` needs a `url` that begins with rediss://".to_owned());
    }
    let read = |error: &dyn std::fmt::Display| format!("`tls.ca` = `{}`: {error}", ca.display());
    let pem = std::fs::read(ca).map_err(|error| read(&error))?;
    let found = CertificateDer::pem_slice_iter(&pem).next();
    found.ok_or_else(|| read(&"it holds no certificate in PEM form"))?.map_err(|e| read(&e))?;
    Ok(TlsCertificates { client_tls: None, root_cert: Some(pem) })
}

/// Of a transaction that was given up: the error of the command that caused it.
fn first_cause(error: RedisError) -> RedisError {
    let aborted = error.code() == Some("EXECABORT");
    let cause = aborted.then(|| error.clone().into_server_errors()).flatten();
    let cause = cause.and_then(|errors| errors.first().map(|(_, cause)| cause.clone()));
    cause.map_or(error, RedisError::from)
}

/// Whether the connection is broken, or its map of the cluster is.
fn is_stale(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("MOVED" | "ASK" | "READONLY" | "CLUSTERDOWN"))
}

/// What an answer of the server means.
pub(super) fn meaning(error: &RedisError) -> Outcome {
    let text = error.to_string();
    match error.code() {
        Some("WRONGTYPE") => Outcome::Rejected {
            error: format!("the stream's name belongs to something else: {text}"),
            detail: None,
        },
        Some("NOAUTH" | "WRONGPASS" | "NOPERM") => refused(error),
        Some(
            "LOADING" | "BUSY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "READONLY" | "MISCONF"
            | "OOM" | "NOREPLICAS" | "MOVED" | "ASK" | "EXECABORT",
        ) => down(text),
        Some(_) => Outcome::Retry { error: text },
        None => refused(error),
    }
}

/// No answer of the server at all, or none but that it does not know us.
fn refused(error: &RedisError) -> Outcome {
    let credentials = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let (error, retry_after, cause) = (error.to_string(), None, Cause::Destination);
    Outcome::Down { error, retry_after, credentials, cause }
}

/// Not a part of the cluster, but all of it.
fn unreachable(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Down { error, retry_after, credentials, .. } => {
            Outcome::Down { error, retry_after, credentials, cause: Cause::Server }
        }
        other => other,
    }
}

pub(super) fn down(error: String) -> Outcome {
    let (retry_after, cause) = (None, Cause::Destination);
    Outcome::Down { error, retry_after, credentials: false, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_its_password_is_in_no_message() {
        let (nodes, shown) = urls("rediss://app:hu,sh@a:1,b:2/0").unwrap();
        assert_eq!(nodes, ["rediss://app:hu,sh@a:1/0", "rediss://app:hu,sh@b:2/0"]);
        assert_eq!(shown, "a:1,b:2");
        for wrong in ["hush", "http://hush@h", "redis://", "redis://hush@,", "redis://hush@h:port"]
        {
            let error = Server::new(wrong, None, None, Duration::from_secs(1)).err().unwrap();
            assert!(error.contains("`url`") && !error.contains("hush"), "{wrong}: {error}");
        }
        let error =
            Server::new("redis://a,b", Some(false), None, Duration::from_secs(1)).err().unwrap();
        assert!(error.contains("`cluster`"), "{error}");
    }
}
