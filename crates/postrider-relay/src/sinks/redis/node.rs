//! One connection to one server: a single server, or a node of a cluster.

use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, RedisResult, TlsCertificates,
    Value,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// The parts of a URL that all nodes of a cluster share, and the timeout of a node.
pub(super) struct Access {
    scheme: String,
    /// Ends with `@` unless it is empty.
    login: String,
    path: String,
    trusted: Option<TlsCertificates>,
    pub(super) timeout: Duration,
}

impl Access {
    /// Parses the URL. Also returns the `host:port` of each node in it. `None` if it is not a Redis
    /// URL.
    pub(super) fn read(
        url: &str,
        ca: Option<&Path>,
        timeout: Duration,
    ) -> Result<Option<(Self, Vec<String>)>, String> {
        let Some((scheme, login, hosts, path)) = parts(url) else { return Ok(None) };
        let trusted = ca.map(|ca| trusted(ca, scheme)).transpose()?;
        let (scheme, path) = (scheme.to_owned(), path.to_owned());
        let access = Self { scheme, login, path, trusted, timeout };
        let valid = hosts.iter().all(|host| access.client(host).is_ok());
        Ok(valid.then_some((access, hosts)))
    }

    fn client(&self, address: &str) -> RedisResult<Client> {
        let url = format!("{}://{}{address}{}", self.scheme, self.login, self.path);
        match &self.trusted {
            Some(certificates) => Client::build_with_tls(url, certificates.clone()),
            None => Client::open(url),
        }
    }

    async fn connect(&self, address: &str) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        self.client(address)?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Runs commands about a key that is being moved to this node. It uses a separate connection,
    /// because `ASKING` applies to the next command on the wire.
    pub(super) async fn run_asking(
        &self,
        address: &str,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let asking = async {
            let mut connection = self.connect(address).await?;
            redis::cmd("ASKING").exec_async(&mut connection).await?;
            Ok(connection)
        };
        let asking = timeout_at(self.until(deadline), asking).await;
        let asking = asking.unwrap_or_else(|_| Err(silence()));
        ask(pipeline, &mut asking.map_err(Failure::Unreached)?, self.until(deadline)).await
    }

    fn until(&self, deadline: Instant) -> Instant {
        deadline.min(Instant::now() + self.timeout)
    }
}

/// Why the commands were not answered.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no connection: nothing was sent.
    Unreached(RedisError),
    /// The commands were sent.
    Unanswered(RedisError),
    /// The server took the commands of a transaction and refused to execute it. By its version, the
    /// transaction may still be open.
    NotExecuted(RedisError),
}

impl Failure {
    pub(super) fn error(&self) -> &RedisError {
        let (Self::Unreached(error) | Self::Unanswered(error) | Self::NotExecuted(error)) = self;
        error
    }

    pub(super) fn into_error(self) -> RedisError {
        let (Self::Unreached(error) | Self::Unanswered(error) | Self::NotExecuted(error)) = self;
        error
    }
}

pub(super) fn silence() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}

/// A server, connected on first use and again after the connection broke. Calls share the
/// connection: their commands are interleaved on the wire.
pub(super) struct Node {
    pub(super) address: String,
    /// With a number, so that a failure of an older connection does not drop a newer one.
    connection: Mutex<(u64, Option<MultiplexedConnection>)>,
}

impl Node {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), connection: Mutex::new((0, None)) }
    }

    /// Runs commands. Returns one answer per command.
    pub(super) async fn run(
        &self,
        access: &Access,
        pipeline: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let until = access.until(deadline);
        let (number, mut connection) = timeout_at(until, self.connected(access))
            .await
            .unwrap_or_else(|_| Err(silence()))
            .map_err(Failure::Unreached)?;
        let ran = ask(pipeline, &mut connection, access.until(deadline)).await;
        let is_unusable = match &ran {
            // A connection that is silent may stay silent forever.
            Err(Failure::Unanswered(error)) => {
                error.is_io_error() || error.is_unrecoverable_error() || is_of_replica(error)
            }
            // The server may only queue what is sent next.
            Err(Failure::NotExecuted(_)) => true,
            Ok(answers) => answers.iter().any(is_replicas),
            Err(Failure::Unreached(_)) => false,
        };
        if is_unusable {
            self.drop_connection(number).await;
        }
        ran
    }

    pub(super) async fn disconnect(&self) {
        self.connection.lock().await.1 = None;
    }

    /// Returns the connection, and creates it if there is none; other calls to this node wait for
    /// it.
    async fn connected(&self, access: &Access) -> RedisResult<(u64, MultiplexedConnection)> {
        let mut held = self.connection.lock().await;
        if let (number, Some(connection)) = &*held {
            return Ok((*number, connection.clone()));
        }
        let connection = access.connect(&self.address).await?;
        *held = (held.0 + 1, Some(connection.clone()));
        Ok((held.0, connection))
    }

    async fn drop_connection(&self, number: u64) {
        let mut held = self.connection.lock().await;
        if held.0 == number {
            held.1 = None;
        }
    }
}

/// Returns whether a server answered that it is a replica. It was the master when it was connected,
/// and keeps the connection, while the address may lead to the new master by now.
fn is_replicas(answer: &Value) -> bool {
    match answer {
        Value::ServerError(error) => is_of_replica(&error.clone().into()),
        _ => false,
    }
}

/// The same for an error. That of a command in a script has a code of its own in older versions of
/// Redis.
fn is_of_replica(error: &RedisError) -> bool {
    error.code() == Some("READONLY")
        || error.detail().is_some_and(|detail| detail.contains("-READONLY "))
}

async fn ask(
    pipeline: &Pipeline,
    connection: &mut MultiplexedConnection,
    until: Instant,
) -> Result<Vec<Value>, Failure> {
    let answers = async {
        match pipeline.is_transaction() {
            true => {
                // `MULTI` and `EXEC` are answered, too. The library's own way of running a
                // transaction replaces an error of `EXEC` by one of its own.
                let answers = connection.send_packed_commands(pipeline, 0, pipeline.len() + 2);
                executed(answers.await.map_err(Failure::Unanswered)?)
            }
            false => pipeline.query_async(connection).await.map_err(Failure::Unanswered),
        }
    };
    timeout_at(until, answers).await.unwrap_or_else(|_| Err(Failure::Unanswered(silence())))
}

/// Returns the answers to the commands of a transaction, from those to `MULTI`, to each command
/// (`QUEUED`) and to `EXEC`.
fn executed(mut answers: Vec<Value>) -> Result<Vec<Value>, Failure> {
    let error = match answers.pop() {
        Some(Value::Array(answers)) => return Ok(answers),
        Some(Value::ServerError(error)) => RedisError::from(error),
        _ => RedisError::from((ErrorKind::UnexpectedReturnType, "EXEC returned no answers")),
    };
    // The error of the command that made it abort says more.
    let cause = answers.into_iter().find_map(server_error);
    match cause.filter(|_| error.code() == Some("EXECABORT")) {
        Some(cause) => Err(Failure::Unanswered(cause)),
        None => Err(Failure::NotExecuted(refusal(&error).unwrap_or(error))),
    }
}

/// Returns why the server refused `EXEC` itself, which it reports as an aborted transaction:
/// `EXECABORT Transaction discarded because of: NOPERM …`.
fn refusal(error: &RedisError) -> Option<RedisError> {
    let (_, reason) = error.detail()?.split_once("because of: ")?;
    let code = reason.split(' ').next()?;
    if code.is_empty() || !code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return None;
    }
    redis::parse_redis_value(format!("-{reason}\r\n").as_bytes()).ok().and_then(server_error)
}

fn server_error(answer: Value) -> Option<RedisError> {
    match answer {
        Value::ServerError(error) => Some(RedisError::from(error)),
        _ => None,
    }
}

/// Splits a URL into scheme, login, the address of each node, and the rest.
fn parts(url: &str) -> Option<(&str, String, Vec<String>, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (login, rest) = rest.rsplit_once('@').map_or(("", rest), |(login, rest)| (login, rest));
    let (hosts, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let hosts: Vec<String> =
        hosts.split(',').filter(|host| !host.is_empty()).map(ToOwned::to_owned).collect();
    let login = if login.is_empty() { String::new() } else { format!("{login}@") };
    let known = matches!(scheme, "redis" | "rediss") && !hosts.is_empty();
    known.then_some((scheme, login, hosts, path))
}

/// Reads the trusted certificates of a file in PEM form.
fn trusted(ca: &Path, scheme: &str) -> Result<TlsCertificates, String> {
    if scheme != "rediss" {
        return Err("`tls` needs a `url` that begins with rediss://".to_owned());
    }
    let read = |error: &dyn std::fmt::Display| format!("`tls.ca` = `{}`: {error}", ca.display());
    let pem = std::fs::read(ca).map_err(|error| read(&error))?;
    let found = CertificateDer::pem_slice_iter(&pem).next();
    found.ok_or_else(|| read(&"it holds no certificate in PEM form"))?.map_err(|e| read(&e))?;
    Ok(TlsCertificates { client_tls: None, root_cert: Some(pem) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_exec(queued: &str, exec: &str) -> Failure {
        let parse = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        executed(vec![parse("+OK\r\n"), parse(queued), parse(exec)]).unwrap_err()
    }

    #[test]
    fn an_exec_that_is_refused_has_the_servers_reason() {
        let aborted = "-EXECABORT Transaction discarded because of: NOPERM no permission\r\n";
        // Servers differ in how they say it, and whether the transaction is still open then.
        for exec in [aborted, "-NOPERM no permission\r\n"] {
            let failure = refused_exec("+QUEUED\r\n", exec);
            assert!(matches!(failure, Failure::NotExecuted(_)), "{failure:?}");
            assert_eq!(failure.error().code(), Some("NOPERM"), "{failure:?}");
        }
        let previous = "-EXECABORT Transaction discarded because of previous errors.\r\n";
        let failure = refused_exec("-MOVED 7 127.0.0.1:1\r\n", previous);
        assert!(matches!(failure, Failure::Unanswered(_)), "{failure:?}");
        assert_eq!(failure.error().code(), Some("MOVED"));
        let failure = refused_exec("+QUEUED\r\n", previous);
        assert_eq!(failure.error().code(), Some("EXECABORT"));
    }

    #[test]
    fn a_replica_is_recognised_in_a_script_of_any_version() {
        let parse = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        for answer in [
            "-READONLY You can't write against a read only replica.\r\n",
            "-READONLY You can't write against a read only replica. script: 5d, on \
             @user_script:3.\r\n",
            "-ERR Error running script (call to f_5d): @user_script:3: @user_script: 3: -READONLY \
             You can't write against a read only replica. \r\n",
        ] {
            assert!(is_replicas(&parse(answer)), "{answer}");
        }
        assert!(!is_replicas(&parse("-ERR unknown command\r\n")));
        assert!(!is_replicas(&parse("$9\r\n-READONLY\r\n")));
    }

    #[test]
    fn a_url_of_a_cluster_is_taken_apart() {
        let (scheme, login, hosts, path) = parts("rediss://app:hu,sh@a:1,b:2/0").unwrap();
        assert_eq!((scheme, login.as_str(), path), ("rediss", "app:hu,sh@", "/0"));
        assert_eq!(hosts, ["a:1", "b:2"]);
    }
}
