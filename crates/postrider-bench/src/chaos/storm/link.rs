//! The link from a relay to its database: a loopback port that forwards everything, and can cut or
//! stall connections. This way only sessions of this run are ever cut, and the database need not
//! grant any privilege for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_command::Failure;
use rand::RngExt;
use rand::rngs::StdRng;
use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum number of bytes in transit in one direction.
const BUFFER_BYTES: usize = 64 * 1_024;
/// Options of URLs that name a socket file or verify the server's name: no proxy can be placed in
/// between.
const DIRECT: [&str; 6] =
    ["host=", "socket=", "verify-full", "verify_identity", "sslnegotiation=direct", "hostaddr="];

/// The link of one relay. Dropping it closes it.
pub(super) struct Link {
    /// The store's URL, with this port instead of the server's.
    pub(super) url: String,
    open: Arc<Open>,
    stalled: watch::Sender<bool>,
    _serving: JoinSet<()>,
}

/// Connections by number, each with the token that cuts it.
#[derive(Debug, Default)]
struct Open(Mutex<BTreeMap<u64, CancellationToken>>);

impl Open {
    fn list(&self) -> MutexGuard<'_, BTreeMap<u64, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the reason why no proxy can be placed between a relay and this store, if there is one.
pub(super) fn hindrance(url: &str) -> Option<&'static str> {
    let lower = url.to_ascii_lowercase();
    if lower.starts_with("sqlite:") {
        return Some("not applicable: SQLite has no sessions");
    }
    if DIRECT.iter().any(|option| lower.contains(option)) || server(url).is_none() {
        return Some("none: the URL names a socket, or asks to verify the server's name");
    }
    None
}

/// Returns host and port.
fn server(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url).ok()?;
    let default = if url.scheme().starts_with("postgres") { 5_432 } else { 3_306 };
    let host = url.host_str().filter(|host| !host.is_empty())?.trim_matches(['[', ']']);
    Some((host.to_owned(), url.port().unwrap_or(default)))
}

impl Link {
    pub(super) async fn open(url: &str) -> Result<Self, Failure> {
        let failed = |error: String| Failure::Partly(format!("no way to the database: {error}"));
        let server = server(url).ok_or_else(|| failed("the URL has no host".to_owned()))?;
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| failed(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| failed(error.to_string()))?;
        let mut own = Url::parse(url).map_err(|error| failed(error.to_string()))?;
        own.set_host(Some("127.0.0.1")).map_err(|error| failed(error.to_string()))?;
        own.set_port(Some(address.port()))
            .map_err(|()| failed("the URL has no port".to_owned()))?;
        let (open, stalled) = (Arc::new(Open::default()), watch::Sender::new(false));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, server, Arc::clone(&open), stalled.clone()));
        Ok(Self { url: own.to_string(), open, stalled, _serving: serving })
    }

    /// Cuts one connection, or all. Returns the number of connections cut.
    pub(super) fn cut(&self, all: bool, dice: &mut StdRng) -> u64 {
        let list = self.open.list();
        if list.is_empty() {
            return 0;
        }
        let chosen = dice.random_range(0..list.len());
        let cut = list.values().enumerate().filter(|(place, _)| all || *place == chosen);
        cut.map(|(_, connection)| connection.cancel()).count() as u64
    }

    /// Stalls all connections, or lets them continue.
    pub(super) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }
}

async fn serve(
    listener: TcpListener,
    server: (String, u16),
    open: Arc<Open>,
    stalled: watch::Sender<bool>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        while connections.try_join_next().is_some() {}
        let Ok((client, _)) = listener.accept().await else { continue };
        let cut = CancellationToken::new();
        open.list().insert(number, cut.clone());
        let (server, open, stalled) = (server.clone(), Arc::clone(&open), stalled.subscribe());
        connections.spawn(async move {
            drop(cut.run_until_cancelled(pass_on(client, server, stalled)).await);
            open.list().remove(&number);
        });
    }
}

/// Forwards in both directions until one side ends the connection.
async fn pass_on(
    client: TcpStream,
    server: (String, u16),
    stalled: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        ended = pump(from_client, to_server, stalled.clone()) => ended,
        ended = pump(from_server, to_client, stalled) => ended,
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut stalled: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 || stalled.wait_for(|stalled| !stalled).await.is_err() {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_network_addresses_can_be_led_through_a_link() {
        assert_eq!(server("postgres://u@db.example/x"), Some(("db.example".to_owned(), 5_432)));
        assert_eq!(server("mysql://u:p@[::1]:3307/x"), Some(("::1".to_owned(), 3_307)));
        assert_eq!(hindrance("postgres://u@127.0.0.1:5433/x?sslmode=require"), None);
        for url in [
            "sqlite:./x.db",
            "postgres://u@/x?host=/run/postgresql",
            "mysql://u@localhost/x?socket=/run/mysqld.sock",
            "postgres://u@db.example/x?sslmode=verify-full",
            "mysql://u@db.example/x?ssl-mode=VERIFY_IDENTITY",
        ] {
            assert!(hindrance(url).is_some(), "{url}");
        }
    }
}
