//! An HTTP receiver that replies by rule and records everything.
//!
//! | answer | effect for the sender |
//! |---|---|
//! | [`Answer::status`] | this status, after the delay and with the specified headers |
//! | [`Answer::hang`] | an open connection on which no reply ever arrives |
//! | [`Answer::hang_up`] | a connection that closes after the request was read: accepted, but the answer is lost |

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A request that arrived, with its answer.
#[derive(Debug, Clone)]
pub struct Received {
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as text.
    pub body: String,
    /// When it had been read completely.
    pub at: Instant,
    /// The answer that was sent.
    pub answer: Answer,
}

impl Received {
    /// Returns a header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the event id.
    pub fn key(&self) -> &str {
        self.header("idempotency-key")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reply {
    Status(u16),
    Hang,
    HangUp,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    reply: Reply,
    delay: Duration,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    /// Replies with this status immediately.
    pub fn status(status: u16) -> Self {
        Self {
            reply: Reply::Status(status),
            delay: Duration::ZERO,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    /// Replies with 204 immediately.
    pub fn ok() -> Self {
        Self::status(204)
    }

    /// Never replies.
    pub fn hang() -> Self {
        Self { reply: Reply::Hang, ..Self::ok() }
    }

    /// Closes the connection instead of replying.
    pub fn hang_up() -> Self {
        Self { reply: Reply::HangUp, ..Self::ok() }
    }

    /// Delays the answer.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sets the body of the answer.
    #[must_use]
    pub fn body(self, body: impl Into<String>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Returns whether the event counts as accepted: answered with success, even if the answer is
    /// lost.
    fn takes(&self) -> bool {
        matches!(self.reply, Reply::Status(200..=299) | Reply::HangUp)
    }
}

type Rule = Box<dyn FnMut(&Received) -> Answer + Send>;

struct Memory {
    rule: Mutex<Rule>,
    received: Mutex<Vec<Received>>,
}

/// The receiver; it stops when dropped.
pub struct HttpTarget {
    address: SocketAddr,
    memory: Arc<Memory>,
    stop: CancellationToken,
}

impl HttpTarget {
    /// Starts a receiver that replies 204 to everything.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::new(Memory {
            rule: Mutex::new(Box::new(|_| Answer::ok())),
            received: Mutex::new(Vec::new()),
        });
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&memory), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self { address, memory, stop }
    }

    /// Returns the URL of the receiver.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the rule for answers. The `answer` of the request passed to it is not set yet.
    pub fn answer_by(&self, rule: impl FnMut(&Received) -> Answer + Send + 'static) {
        *self.memory.rule.lock().unwrap() = Box::new(rule);
    }

    /// Sets one answer for all requests.
    pub fn answer(&self, answer: Answer) {
        self.answer_by(move |_| answer.clone());
    }

    /// Returns all requests so far, in the order of arrival.
    pub fn received(&self) -> Vec<Received> {
        self.memory.received.lock().unwrap().clone()
    }

    /// Returns the number of requests so far.
    pub fn count(&self) -> usize {
        self.memory.received.lock().unwrap().len()
    }

    /// Returns the requests with this event id.
    pub fn calls(&self, key: &str) -> Vec<Received> {
        let received = self.memory.received.lock().unwrap();
        received.iter().filter(|request| request.key() == key).cloned().collect()
    }

    /// Returns how often each event id was accepted.
    pub fn taken(&self) -> HashMap<String, u32> {
        let mut taken = HashMap::new();
        for request in self.memory.received.lock().unwrap().iter() {
            if request.answer.takes() {
                *taken.entry(request.key().to_owned()).or_insert(0) += 1;
            }
        }
        taken
    }
}

impl Drop for HttpTarget {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, memory: Arc<Memory>, stop: CancellationToken) {
    loop {
        // For example out of file descriptors: the next one may succeed.
        let Ok((stream, _)) = listener.accept().await else { continue };
        let connection = converse(stream, Arc::clone(&memory));
        tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    }
}

async fn converse(stream: TcpStream, memory: Arc<Memory>) {
    stream.set_nodelay(true).ok();
    let service = service_fn(move |request| answer(request, Arc::clone(&memory)));
    let connection = hyper::server::conn::http1::Builder::new();
    // A sender that disconnects, or is disconnected, ends the connection with an error, as
    // intended.
    drop(connection.serve_connection(TokioIo::new(stream), service).await);
}

/// The error of the service that closes the connection without a reply.
#[derive(Debug)]
struct HungUp;

impl std::fmt::Display for HungUp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("hung up by rule")
    }
}

impl std::error::Error for HungUp {}

async fn answer(
    request: Request<Incoming>,
    memory: Arc<Memory>,
) -> Result<Response<Full<Bytes>>, HungUp> {
    let (parts, body) = request.into_parts();
    // A sender that was killed in the middle of its request has not sent it.
    let body = body.collect().await.map_err(|_| HungUp)?.to_bytes();
    let headers = parts.headers.iter().map(|(name, value)| {
        (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut received = Received {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
        at: Instant::now(),
        answer: Answer::ok(),
    };
    let answer = {
        let mut rule = memory.rule.lock().unwrap();
        rule(&received)
    };
    received.answer = answer.clone();
    memory.received.lock().unwrap().push(received);
    if !answer.delay.is_zero() {
        tokio::time::sleep(answer.delay).await;
    }
    let status = match answer.reply {
        Reply::Status(status) => status,
        Reply::HangUp => return Err(HungUp),
        Reply::Hang => match std::future::pending::<Infallible>().await {},
    };
    let mut response = Response::builder().status(status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(answer.body.into())).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_client::send;

    #[tokio::test]
    async fn it_answers_by_rule_and_remembers() {
        let target = HttpTarget::start().await;
        target.answer_by(|request| match request.body.as_str() {
            "bad" => Answer::status(422).header("x-why", "bad").body("no"),
            "lost" => Answer::hang_up(),
            _ => Answer::ok(),
        });
        let post = async |key: &'static str, body: &'static str| {
            send(target.address, "POST", "/a?b=1", &[("idempotency-key", key)], body).await
        };
        assert_eq!(post("1", "good").await.unwrap().status, 204);
        let refused = post("2", "bad").await.unwrap();
        assert_eq!((refused.status, refused.headers["x-why"].as_str()), (422, "bad"));
        assert!(post("3", "lost").await.is_err(), "the connection closes");
        assert_eq!(target.taken(), HashMap::from([("1".to_owned(), 1), ("3".to_owned(), 1)]));
        assert_eq!((target.count(), target.calls("2")[0].path.as_str()), (3, "/a?b=1"));
    }
}
