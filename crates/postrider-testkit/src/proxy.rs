//! A network that fails on demand.
//!
//! The proxy listens on loopback between a client and a real server and passes bytes both ways. Its
//! switches cause the failures that matter to an outbox, when the test requests them:
//!
//! | switch | effect for the client | effect at the server |
//! |---|---|---|
//! | [`pass`](FaultProxy::pass) | a working server | everything is executed |
//! | [`cut`](FaultProxy::cut) | connections break, new ones are closed at once | nothing more is executed |
//! | [`blackhole`](FaultProxy::blackhole) | silence, on old and new connections | nothing more is executed |
//! | [`hold_answers_after`](FaultProxy::hold_answers_after) | the beginning of an answer | everything is executed |
//! | [`lose_answer_to`](FaultProxy::lose_answer_to) | the connection breaks | **the request is executed** |
//! | [`lead_to`](FaultProxy::lead_to) | new connections reach another server, old ones stay | the address moved in a failover |
//!
//! The last one is "the database committed, but we did not receive the answer": the request reaches
//! the server, the proxy discards the server's whole answer, and only then closes the connection. A
//! request is identified by bytes that it contains, because drivers send requests of their own in
//! between (pings, prepares).

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time without data after a request, after which the server's answer counts as complete.
const ANSWER_QUIET: Duration = Duration::from_millis(150);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Cut,
    Blackhole,
}

/// State shared by all connections of a proxy.
struct Switches {
    /// Where new connections lead.
    upstream: Mutex<String>,
    mode: watch::Sender<Mode>,
    /// Number of answer bytes that may still pass; `None` is unlimited.
    allowance: watch::Sender<Option<usize>>,
    /// Bytes of the request whose answer is to be lost; empty matches any request.
    doomed: Mutex<Option<Vec<u8>>>,
    lost: watch::Sender<u64>,
}

/// A TCP proxy with switches; it stops when dropped.
pub struct FaultProxy {
    address: SocketAddr,
    switches: Arc<Switches>,
    stop: CancellationToken,
}

impl FaultProxy {
    /// Starts a proxy in front of `upstream` (`host:port`), passing everything.
    pub async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let switches = Arc::new(Switches {
            upstream: Mutex::new(upstream.to_owned()),
            mode: watch::Sender::new(Mode::Pass),
            allowance: watch::Sender::new(None),
            doomed: Mutex::new(None),
            lost: watch::Sender::new(0),
        });
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&switches), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self { address, switches, stop }
    }

    /// Starts a proxy in front of a database URL's server, and returns the URL that leads through
    /// it. The proxy reads what passes, which MySQL would encrypt by default.
    pub async fn in_front_of(url: &str) -> (Self, String) {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
        let host = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
        let proxy = Self::start(&url[host..end]).await;
        let mut through = format!("{}{}{}", &url[..host], proxy.address, &url[end..]);
        if url.starts_with("mysql:") {
            through.push_str(if url.contains('?') { "&" } else { "?" });
            through.push_str("ssl-mode=DISABLED");
        }
        (proxy, through)
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes everything, again.
    pub fn pass(&self) {
        self.switches.allowance.send_replace(None);
        self.switches.mode.send_replace(Mode::Pass);
    }

    /// Closes all connections, and every new one at once.
    pub fn cut(&self) {
        self.switches.mode.send_replace(Mode::Cut);
    }

    /// Accepts connections and passes nothing, in either direction.
    pub fn blackhole(&self) {
        self.switches.mode.send_replace(Mode::Blackhole);
    }

    /// Passes this many bytes of answers, and holds the rest until everything passes again.
    pub fn hold_answers_after(&self, bytes: usize) {
        self.switches.allowance.send_replace(Some(bytes));
    }

    /// Loses the answer to the next request of any kind. Then everything passes again.
    pub fn lose_next_answer(&self) {
        self.lose_answer_to(b"");
    }

    /// Loses the answer to the next request that contains these bytes. Then everything passes
    /// again.
    pub fn lose_answer_to(&self, marker: &[u8]) {
        *self.switches.doomed.lock().unwrap() = Some(marker.to_vec());
    }

    /// Connects new clients to another server (`host:port`). Connections that exist stay.
    pub fn lead_to(&self, upstream: &str) {
        upstream.clone_into(&mut self.switches.upstream.lock().unwrap());
    }

    /// Returns the number of answers lost so far.
    pub fn answers_lost(&self) -> u64 {
        *self.switches.lost.borrow()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: TcpListener, switches: Arc<Switches>, stop: CancellationToken) {
    while let Ok((client, _)) = listener.accept().await {
        let connection = connect(client, Arc::clone(&switches));
        tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    }
}

/// Serves one connection, until either side closes it or a switch ends it.
async fn connect(client: TcpStream, switches: Arc<Switches>) {
    let mut mode = switches.mode.subscribe();
    if *mode.borrow_and_update() == Mode::Cut {
        return;
    }
    // A connection that starts in blackhole mode stays silent until the mode changes.
    if mode.wait_for(|mode| *mode != Mode::Blackhole).await.is_err() {
        return;
    }
    let upstream = switches.upstream.lock().unwrap().clone();
    let Ok(server) = TcpStream::connect(&upstream).await else {
        return;
    };
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let swallow = watch::Sender::new(false);
    tokio::select! {
        () = requests(from_client, to_server, &switches, &swallow) => {}
        () = answers(from_server, to_client, &switches, swallow.subscribe()) => {}
        _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    switches: &Switches,
    swallow: &watch::Sender<bool>,
) {
    let mut mode = switches.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    let mut seen: Vec<u8> = Vec::new();
    while let Ok(length @ 1..) = client.read(&mut buffer).await {
        if mode.wait_for(|mode| *mode == Mode::Pass).await.is_err() {
            return;
        }
        seen.extend_from_slice(&buffer[..length]);
        {
            let mut doomed = switches.doomed.lock().unwrap();
            if doomed.as_ref().is_some_and(|marker| contains(&seen, marker)) {
                *doomed = None;
                // Set before the request is sent, so that no byte of its answer gets through.
                swallow.send_replace(true);
            }
        }
        if server.write_all(&buffer[..length]).await.is_err() {
            return;
        }
        // Reads may split a marker, so the longest possible beginning of one is kept.
        let keep = switches.doomed.lock().unwrap().as_ref().map_or(0, |m| m.len().max(1) - 1);
        seen.drain(..seen.len().saturating_sub(keep));
    }
}

async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    switches: &Switches,
    swallow: watch::Receiver<bool>,
) {
    let mut mode = switches.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = server.read(&mut buffer).await {
        if *swallow.borrow() {
            // Reads to the end of the answer, because a server may start it before it commits.
            while let Ok(Ok(1..)) =
                tokio::time::timeout(ANSWER_QUIET, server.read(&mut buffer)).await
            {}
            switches.lost.send_modify(|lost| *lost += 1);
            return;
        }
        if mode.wait_for(|mode| *mode == Mode::Pass).await.is_err() {
            return;
        }
        let mut passed = 0;
        while passed < length {
            let Some(part) = allowed(switches, length - passed).await else { return };
            if client.write_all(&buffer[passed..passed + part]).await.is_err() {
                return;
            }
            passed += part;
        }
    }
}

/// Waits until bytes of an answer may pass, and returns how many.
async fn allowed(switches: &Switches, wanted: usize) -> Option<usize> {
    let mut allowance = switches.allowance.subscribe();
    allowance.wait_for(|left| *left != Some(0)).await.ok()?;
    let mut granted = wanted;
    switches.allowance.send_if_modified(|left| {
        let Some(left) = left else { return false };
        granted = wanted.min(*left);
        *left -= granted;
        true
    });
    Some(granted)
}

fn contains(bytes: &[u8], marker: &[u8]) -> bool {
    marker.is_empty() || bytes.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a server that answers every request with its bytes in capitals.
    async fn shouting_server() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = [0; 100];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        let answer = buffer[..length].to_ascii_uppercase();
                        drop(stream.write_all(&answer).await);
                    }
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, text: &str) -> Option<String> {
        stream.write_all(text.as_bytes()).await.ok()?;
        let mut buffer = [0; 100];
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            _ => None,
        }
    }

    #[tokio::test]
    async fn each_switch_does_what_its_table_says() {
        let proxy = FaultProxy::start(&shouting_server().await).await;
        let open = async || TcpStream::connect(proxy.address()).await.unwrap();
        let mut first = open().await;
        assert_eq!(ask(&mut first, "a").await.as_deref(), Some("A"));

        proxy.lose_answer_to(b"doomed");
        assert_eq!(ask(&mut first, "ping").await.as_deref(), Some("PING"), "not the one meant");
        assert_eq!(ask(&mut first, "a doomed one").await, None);
        assert_eq!(proxy.answers_lost(), 1);
        let mut second = open().await;
        assert_eq!(ask(&mut second, "doomed").await.as_deref(), Some("DOOMED"), "only once");

        proxy.lose_next_answer();
        assert_eq!(ask(&mut second, "anything").await, None);
        assert_eq!(proxy.answers_lost(), 2);

        let mut third = open().await;
        assert_eq!(ask(&mut third, "b").await.as_deref(), Some("B"));
        proxy.blackhole();
        let silence = Duration::from_millis(100);
        assert!(tokio::time::timeout(silence, ask(&mut third, "c")).await.is_err());
        proxy.pass();
        let mut buffer = [0; 10];
        assert_eq!(third.read(&mut buffer).await.unwrap(), 1, "the held request is passed on");
        proxy.hold_answers_after(2);
        assert_eq!(ask(&mut third, "held").await.as_deref(), Some("HE"));
        assert!(tokio::time::timeout(silence, third.read(&mut buffer)).await.is_err());
        proxy.pass();
        assert_eq!(third.read(&mut buffer).await.unwrap(), 2, "the rest of it");
        proxy.cut();
        assert_eq!(ask(&mut third, "d").await, None);
        assert_eq!(ask(&mut open().await, "e").await, None, "new ones are closed too");
        proxy.pass();
        assert_eq!(ask(&mut open().await, "f").await.as_deref(), Some("F"));
    }
}
