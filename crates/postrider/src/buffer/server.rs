//! The connection to the node that has the buffer.
//!
//! All keys of a buffer are in one slot, so one node serves it at any time, and a cluster says
//! which. This module follows the node itself instead of using a cluster client, because such a
//! client sends a command again when a connection breaks, and a count that is sent twice is counted
//! twice. Here a command is repeated only if the server said that it did *not* run it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::sync::Mutex;

use super::BufferError;

/// Wait before a command is repeated that a cluster cannot serve yet (a slot is moving, an election
/// runs).
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A server, or the cluster node of one slot; connected on first use.
pub(super) struct Server {
    scheme: String,
    login: String,
    path: String,
    /// Hosts and ports from the URL.
    seeds: Vec<String>,
    timeout: Duration,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    /// The node that has the slot, if known.
    home: Option<String>,
    connections: HashMap<String, MultiplexedConnection>,
}

impl Server {
    /// Parses the URL; does not connect.
    pub(super) fn new(url: &str, timeout: Duration) -> Result<Self, BufferError> {
        // Another library of the same process may have installed a provider already.
        drop(rustls::crypto::ring::default_provider().install_default());
        // The message must not contain the URL, which may have a password.
        let wrong = || {
            BufferError::Settings(
                "`url` is none like redis://user:password@host:6379 or, with TLS, rediss://…; of \
                 a cluster: redis://host1:6379,host2:6379"
                    .to_owned(),
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
        let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let seeds: Vec<String> =
            hosts.split(',').filter(|host| !host.is_empty()).map(ToOwned::to_owned).collect();
        if !matches!(scheme, "redis" | "rediss") || seeds.is_empty() {
            return Err(wrong());
        }
        let server = Self {
            scheme: scheme.to_owned(),
            login: if login.is_empty() { String::new() } else { format!("{login}@") },
            path: path.to_owned(),
            seeds,
            timeout,
            links: Mutex::default(),
        };
        for seed in &server.seeds {
            server.client(seed).map_err(|_| wrong())?;
        }
        Ok(server)
    }

    /// Returns hosts and ports, without credentials.
    pub(super) fn nodes(&self) -> String {
        self.seeds.join(",")
    }

    /// Returns whether both URLs lead to the same data: a common host and port, and the same
    /// database.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let database = |server: &Self| {
            let path = server.path.split('?').next().unwrap_or_default().trim_matches('/');
            if path.is_empty() { "0".to_owned() } else { path.to_owned() }
        };
        let node = |seed: &String| match seed.contains(':') {
            true => seed.clone(),
            false => format!("{seed}:6379"),
        };
        let others: Vec<String> = other.seeds.iter().map(node).collect();
        database(self) == database(other)
            && self.seeds.iter().any(|seed| others.contains(&node(seed)))
    }

    /// Runs commands in order, on one connection, on the node that has the slot. The first must
    /// have a key; its reply shows whether they went to the right node.
    pub(super) async fn run(&self, commands: &[Cmd]) -> Result<Vec<Value>, BufferError> {
        let until = Instant::now() + self.timeout;
        let mut asked: Option<String> = None;
        loop {
            let node = asked.take();
            let asking = node.is_some();
            let (node, mut connection) = self.connected(node, until).await?;
            let mut pipeline = Pipeline::with_capacity(commands.len() + 1);
            pipeline.ignore_errors();
            if asking {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            for command in commands {
                pipeline.add_command(command.clone());
            }
            let answers = tokio::time::timeout_at(
                (until + TRY_AGAIN_AFTER).into(),
                pipeline.query_async::<Vec<Value>>(&mut connection),
            );
            let mut answers = match answers.await {
                Ok(Ok(answers)) => answers,
                Ok(Err(error)) => return Err(self.lost(&node, error.to_string()).await),
                Err(_) => return Err(self.lost(&node, "no answer in time".to_owned()).await),
            };
            if asking && !answers.is_empty() {
                answers.remove(0);
            }
            let Some(Value::ServerError(error)) = answers.first() else { return Ok(answers) };
            let error = RedisError::from(error.clone());
            let again = match error.code() {
                Some("MOVED") => {
                    self.links.lock().await.home = redirected(&error, &node);
                    true
                }
                Some("ASK") => {
                    asked = redirected(&error, &node);
                    true
                }
                Some("TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN") => {
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                    true
                }
                // A master that became a replica; the other nodes know the new master.
                _ if is_of_replica(&error) => {
                    self.forget(&node).await;
                    false
                }
                _ => false,
            };
            if !again || Instant::now() >= until {
                return Err(BufferError::refused(&error));
            }
        }
    }

    /// Runs one command.
    pub(super) async fn run_one(&self, command: Cmd) -> Result<Value, BufferError> {
        let mut answers = self.run(&[command]).await?;
        match answers.len() {
            1 => Ok(answers.remove(0)),
            count => Err(BufferError::Unavailable(format!("{count} answers to one command"))),
        }
    }

    /// Returns a connection to this node. Without a node, connects to the known node of the slot,
    /// or to the first node that replies.
    async fn connected(
        &self,
        node: Option<String>,
        until: Instant,
    ) -> Result<(String, MultiplexedConnection), BufferError> {
        let mut links = self.links.lock().await;
        let candidates: Vec<String> = match node.or_else(|| links.home.clone()) {
            // If it does not reply, the others may know the right one.
            Some(node) => std::iter::once(node).chain(self.seeds.iter().cloned()).collect(),
            None => self.seeds.clone(),
        };
        let mut failed = String::new();
        for node in candidates {
            if let Some(connection) = links.connections.get(&node) {
                return Ok((node.clone(), connection.clone()));
            }
            let connected = tokio::time::timeout_at(until.into(), self.connect(&node)).await;
            match connected {
                Ok(Ok(connection)) => {
                    links.connections.insert(node.clone(), connection.clone());
                    return Ok((node, connection));
                }
                Ok(Err(error)) => failed = format!("{node}: {error}"),
                Err(_) => failed = format!("{node}: no connection in time"),
            }
        }
        links.home = None;
        Err(BufferError::Unreached(failed))
    }

    async fn connect(&self, node: &str) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // Each call has a deadline of its own.
            .set_response_timeout(None);
        self.client(node)?.get_multiplexed_async_connection_with_config(&config).await
    }

    fn client(&self, node: &str) -> Result<Client, RedisError> {
        Client::open(format!("{}://{}{node}{}", self.scheme, self.login, self.path))
    }

    /// Returns the error for a lost connection: whether the server ran the commands is unknown.
    async fn lost(&self, node: &str, error: String) -> BufferError {
        self.forget(node).await;
        BufferError::Unavailable(format!("{node}: {error}"))
    }

    async fn forget(&self, node: &str) {
        let mut links = self.links.lock().await;
        links.connections.remove(node);
        links.home = None;
    }
}

/// Returns whether a node says that it is a replica. In a script, older versions of Redis say so
/// with a code of their own.
fn is_of_replica(error: &RedisError) -> bool {
    error.code() == Some("READONLY")
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

/// Returns the node that a redirect names; without a host it is the host that replied.
fn redirected(error: &RedisError, from: &str) -> Option<String> {
    let (node, _) = error.redirect_node()?;
    let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
    Some(if node.starts_with(':') { format!("{host}{node}") } else { node.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_its_password_is_in_no_message() {
        let timeout = Duration::from_secs(1);
        let server = Server::new("rediss://app:hu,sh@a:1,b:2/0", timeout).unwrap();
        assert_eq!(server.nodes(), "a:1,b:2");
        for wrong in ["hush", "http://hush@h", "redis://", "redis://hush@,", "redis://hush@h:port"]
        {
            let error = Server::new(wrong, timeout).err().unwrap().to_string();
            assert!(error.contains("`url`") && !error.contains("hush"), "{wrong}: {error}");
        }
    }
}
