//! A server or a cluster, and the meaning of its errors.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, FromRedisValue, Pipeline, RedisError, Value};
use tokio::time::Instant;

use super::cluster::Cluster;
use super::node::{Access, Failure, Node};
use crate::outcome::{Cause, Outcome};

/// A server or a cluster, connected on first use and again after a connection broke.
pub(crate) struct Server {
    nodes: String,
    timeout: Duration,
    kind: Kind,
}

enum Kind {
    Single { access: Box<Access>, node: Box<Node> },
    Cluster(Arc<Cluster>),
}

impl Server {
    /// Parses the URL without connecting.
    pub(crate) fn new(
        url: &str,
        cluster: Option<bool>,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<Self, String> {
        crate::tls::install_provider();
        // The message shows no more than this: the URL may contain a password.
        let wrong = || {
            "`url` is none like redis://user:password@host:6379 or, with TLS, rediss://…; of a \
             cluster: redis://host1:6379,host2:6379"
                .to_owned()
        };
        let (access, hosts) = Access::read(url, ca, timeout)?.ok_or_else(wrong)?;
        let nodes = hosts.join(",");
        let kind = match (cluster.unwrap_or(hosts.len() > 1), &hosts[..]) {
            (true, _) => Kind::Cluster(Arc::new(Cluster::new(access, hosts))),
            (false, [host]) => {
                Kind::Single { access: Box::new(access), node: Box::new(Node::new(host)) }
            }
            (false, _) => {
                return Err("`url` names several nodes, but `cluster` is false".to_owned());
            }
        };
        Ok(Self { nodes, timeout, kind })
    }

    /// Returns hosts and ports, without secrets.
    pub(crate) fn nodes(&self) -> &str {
        &self.nodes
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// Returns the name of what fails together with this stream: its part of the cluster, as far as
    /// known.
    pub(super) fn part_of(&self, stream: &str) -> Cow<'_, str> {
        let range = match &self.kind {
            Kind::Single { .. } => None,
            Kind::Cluster(cluster) => cluster.range_of(stream),
        };
        match range {
            Some((first, last)) => Cow::Owned(format!("{} slots {first}-{last}", self.nodes)),
            None => Cow::Borrowed(&self.nodes),
        }
    }

    /// Runs commands that are all about this key. Returns one answer per command, or the outcome
    /// for all of them.
    pub(crate) async fn run(
        &self,
        key: &str,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Outcome> {
        match &self.kind {
            Kind::Single { access, node } => {
                node.run(access, pipeline, deadline).await.map_err(|failure| match failure {
                    Failure::Unreached(error) => unreachable(refused(&error)),
                    Failure::Unanswered(error) | Failure::NotExecuted(error) => meaning(&error),
                })
            }
            Kind::Cluster(cluster) => cluster.run(key, pipeline, deadline).await,
        }
    }

    /// Checks that it answers.
    pub(crate) async fn ping(&self) -> Result<(), String> {
        let deadline = Instant::now() + self.timeout;
        let answered = match &self.kind {
            Kind::Single { access, node } => {
                let mut pipeline = Pipeline::with_capacity(1);
                pipeline.cmd("PING");
                let answers = node.run(access, &pipeline, deadline).await;
                answers.map(drop).map_err(Failure::into_error)
            }
            Kind::Cluster(cluster) => cluster.ping().await,
        };
        answered.map_err(|error| self.does_not_answer(&error.to_string()))
    }

    /// Returns the type of a key; `none` if it does not exist.
    pub(super) async fn type_of(&self, key: &str) -> Result<String, String> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.cmd("TYPE").arg(key);
        let answers = self.run(key, &pipeline, Instant::now() + self.timeout).await;
        let mut answers = answers.map_err(|outcome| match outcome {
            Outcome::Down { error, .. } | Outcome::Retry { error } => self.does_not_answer(&error),
            other => self.does_not_answer(&format!("{other:?}")),
        })?;
        let kind = answers.pop().unwrap_or(Value::Nil);
        String::from_redis_value(kind).map_err(|error| self.does_not_answer(&error.to_string()))
    }

    pub(super) async fn disconnect(&self) {
        match &self.kind {
            Kind::Single { node, .. } => node.disconnect().await,
            Kind::Cluster(cluster) => cluster.disconnect().await,
        }
    }

    fn does_not_answer(&self, error: &str) -> String {
        format!("{} does not answer: {error}; check `url` and `cluster`", self.nodes)
    }
}

/// Returns the outcome for an error of the server.
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

/// Returns the outcome for a server that did not answer, or only refused the credentials.
pub(super) fn refused(error: &RedisError) -> Outcome {
    let credentials = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let (error, retry_after, cause) = (error.to_string(), None, Cause::Destination);
    Outcome::Down { error, retry_after, credentials, cause }
}

/// Marks an outcome as being about the whole cluster, not a part of it.
pub(super) fn unreachable(outcome: Outcome) -> Outcome {
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
    fn a_password_is_in_no_message() {
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
