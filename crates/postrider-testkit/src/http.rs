//! An HTTP server that replies as a test specifies, and records its requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::PATIENCE;

/// A request as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Header names in lower case, with their values, in order.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
    /// Number of the connection on which it arrived, from 1.
    pub connection: u64,
}

impl Request {
    /// Returns the values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(found, _)| found == name);
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// The server's reaction to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Replies with this status.
    Status(u16),
    /// Replies with headers and a body.
    Full(u16, Vec<(&'static str, String)>, String),
    /// Replies with this many bytes of body, as long as the client reads.
    Flood(u64),
    /// Sends the head of a 200 and one byte of body, then nothing.
    SlowBody,
    /// Closes the connection without a reply.
    Close,
    /// Never replies.
    Silence,
}

/// The record of a receiver.
#[derive(Debug, Default)]
pub struct Received {
    /// Requests in the order in which they were complete.
    pub requests: Vec<Request>,
    /// Number of requests in progress.
    pub now: usize,
    /// Maximum number of concurrent requests.
    pub now_max: usize,
    /// Number of body bytes that clients accepted.
    pub bytes_sent: u64,
    connections: u64,
}

/// A server on loopback; it ends when dropped.
pub struct Receiver {
    address: SocketAddr,
    received: Arc<watch::Sender<Received>>,
    gate: Arc<watch::Sender<bool>>,
    stop: CancellationToken,
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

impl Receiver {
    /// Starts a server that replies according to the script.
    pub async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            gate: Arc::new(watch::Sender::new(true)),
            stop: CancellationToken::new(),
        };
        let (received, gate) = (Arc::clone(&receiver.received), Arc::clone(&receiver.gate));
        let (script, stop): (Arc<Script>, _) = (Arc::new(script), receiver.stop.clone());
        tokio::spawn(receiver.stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving =
                    serve(stream, Arc::clone(&received), Arc::clone(&gate), Arc::clone(&script));
                tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
            }
        }));
        receiver
    }

    /// Returns a URL on this server.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Holds replies until [`Receiver::open`].
    pub fn shut(&self) {
        self.gate.send_replace(false);
    }

    /// Lets replies through.
    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Returns the record.
    pub fn received(&self) -> watch::Ref<'_, Received> {
        self.received.borrow()
    }

    /// Waits until enough requests were received.
    ///
    /// # Panics
    /// After [`PATIENCE`].
    pub async fn until(&self, what: &str, enough: impl FnMut(&Received) -> bool) {
        let mut received = self.received.subscribe();
        let seen = tokio::time::timeout(PATIENCE, received.wait_for(enough)).await.is_ok();
        assert!(seen, "within {PATIENCE:?}, this did not happen: {what}");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves one connection, until either side closes it.
async fn serve(
    mut stream: TcpStream,
    received: Arc<watch::Sender<Received>>,
    gate: Arc<watch::Sender<bool>>,
    script: Arc<Script>,
) {
    let mut connection = 0;
    received.send_modify(|all| {
        all.connections += 1;
        connection = all.connections;
    });
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer, connection).await {
        let (reply, is_head) = (script(&request), request.method == "HEAD");
        received.send_modify(|all| {
            all.requests.push(request);
            all.now += 1;
            all.now_max = all.now_max.max(all.now);
        });
        drop(gate.subscribe().wait_for(|open| *open).await);
        // Ends before the client can know, so that its next request counts by itself.
        received.send_modify(|all| all.now -= 1);
        if answer(&mut stream, reply, is_head, &received).await.is_none() {
            return;
        }
    }
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    connection: u64,
) -> Option<Request> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        fill(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < head_end + 4 + length {
        fill(stream, buffer).await?;
    }
    let body = String::from_utf8_lossy(&buffer[head_end + 4..head_end + 4 + length]).into_owned();
    buffer.drain(..head_end + 4 + length);
    Some(Request { method, target, headers, body, connection })
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(buffer).await {
        Ok(1..) => Some(()),
        _ => None,
    }
}

/// Replies; `None` ends the connection.
async fn answer(
    stream: &mut TcpStream,
    reply: Reply,
    is_head: bool,
    received: &watch::Sender<Received>,
) -> Option<()> {
    let (status, headers, body) = match reply {
        Reply::Status(status) => (status, Vec::new(), String::new()),
        Reply::Full(status, headers, body) => (status, headers, body),
        Reply::Flood(bytes) => {
            let head = format!("HTTP/1.1 200 Flood\r\ncontent-length: {bytes}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.ok()?;
            let chunk = vec![b'x'; 64 * 1024];
            for _ in 0..bytes.div_ceil(chunk.len() as u64) {
                stream.write_all(&chunk).await.ok()?;
                received.send_modify(|all| all.bytes_sent += chunk.len() as u64);
            }
            return None;
        }
        Reply::SlowBody => {
            stream.write_all(b"HTTP/1.1 200 Slow\r\ncontent-length: 9\r\n\r\nx").await.ok()?;
            return silence().await;
        }
        Reply::Silence => return silence().await,
        Reply::Close => return None,
    };
    let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = if is_head { "" } else { &body };
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.ok()
}

async fn silence() -> Option<()> {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    None
}
