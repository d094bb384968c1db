//! A server that breaks connections on certain bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Passes connections on to a server, and ends each connection in which a client sends the marked
/// bytes. It stops when dropped.
pub struct Tripwire {
    address: SocketAddr,
    broken: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Tripwire {
    /// Starts in front of the server at `host:port`.
    pub async fn before(server: &str, marked: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (broken, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (count, server) = (Arc::clone(&broken), server.to_owned());
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (count, server) = (Arc::clone(&count), server.clone());
                tokio::spawn(async move {
                    let Ok(upstream) = TcpStream::connect(server).await else { return };
                    let (mut from_server, to_server) = upstream.into_split();
                    let (from_client, mut to_client) = client.into_split();
                    tokio::select! {
                        tripped = pass_on(from_client, to_server, marked.as_bytes()) => {
                            count.fetch_add(usize::from(tripped), Ordering::Relaxed);
                        }
                        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
                    }
                });
            }
        }));
        Self { address, broken, stop }
    }

    /// Returns the same URL, but through this server.
    pub fn url(&self, url: &str) -> String {
        let (start, rest) = url.rsplit_once('@').map_or_else(
            || url.split_once("://").map(|(scheme, rest)| (format!("{scheme}://"), rest)).unwrap(),
            |(login, rest)| (format!("{login}@"), rest),
        );
        let path = rest.find('/').map_or("", |at| &rest[at..]);
        format!("{start}{}{path}", self.address)
    }

    /// Returns the number of connections that it has ended.
    pub fn broken(&self) -> usize {
        self.broken.load(Ordering::Relaxed)
    }
}

impl Drop for Tripwire {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Passes data on. Returns whether the marked bytes were sent.
async fn pass_on(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, marked: &[u8]) -> bool {
    let (mut buffer, mut seen) = (vec![0; 64 * 1024], Vec::new());
    while let Ok(count @ 1..) = client.read(&mut buffer).await {
        // Keeps the end of the earlier data, in case the mark is split.
        seen.extend_from_slice(&buffer[..count]);
        if seen.windows(marked.len()).any(|bytes| bytes == marked) {
            return true;
        }
        seen.drain(..seen.len().saturating_sub(marked.len()));
        if server.write_all(&buffer[..count]).await.is_err() {
            return false;
        }
    }
    false
}
