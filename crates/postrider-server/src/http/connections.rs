//! Accepts connections: a limited number in total and per address, with time limits for receiving
//! headers and for clients that do not read their answers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::places::{CONNECTIONS_MAX, Full, Places};
use super::write_timeout::WriteTimeout;
use super::{ServerState, router};

/// Time for a client to send the headers of a request, including the idle time between requests, so
/// that a silent client does not keep its connection for longer.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(20);
/// Minimum interval between log entries about refused connections.
const REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(10);
/// Time that a stop grants connections in addition to the request timeout.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// Pause after a failed accept (for example, because file handles ran out), so that the loop does
/// not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until stopped; requests that were accepted are answered.
pub(crate) async fn serve(listener: TcpListener, state: ServerState, stop: CancellationToken) {
    let feeding = tokio::spawn(super::feed::run(state.clone(), stop.clone()));
    let (grace, ending) = (state.request_timeout + STOP_GRACE, state.stop.clone());
    let write_timeout = state.write_timeout;
    let (places, open) = (Places::new(state.connections_per_address_max), TaskTracker::new());
    let app = router(state);
    let mut refusals = Refusals::default();
    let accepting = async {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = match places.take(peer.ip()) {
                Ok(place) => place,
                // Accepted and then closed, rather than left in the backlog: only an accepted
                // connection shows whether it is a probe from this machine.
                Err(full) => {
                    refusals.log(full, peer);
                    continue;
                }
            };
            let (app, stop) = (app.clone(), stop.clone());
            open.spawn(async move {
                answer(stream, write_timeout, peer, app, stop).await;
                drop(place);
            });
        }
    };
    stop.run_until_cancelled(accepting).await;
    drop(listener);
    ending.cancel();
    open.close();
    if tokio::time::timeout(grace, open.wait()).await.is_err() {
        tracing::warn!(connections = open.len(), "cut off: clients that do not read their answers");
    }
    feeding.abort();
}

/// Refused connections. They are logged at intervals, so that a flood of them does not fill the
/// log.
#[derive(Default)]
struct Refusals {
    unreported: u64,
    told_at: Option<Instant>,
}

impl Refusals {
    fn log(&mut self, full: Full, peer: SocketAddr) {
        self.unreported += 1;
        if self.told_at.is_some_and(|at| at.elapsed() < REFUSALS_TOLD_EVERY) {
            return;
        }
        let refused = std::mem::take(&mut self.unreported);
        self.told_at = Some(Instant::now());
        match full {
            Full::Address => tracing::warn!(refused, %peer,
                "connections refused: too many from one address; see `connections_per_address_max` \
                 in [server]"),
            Full::Server => tracing::warn!(refused, %peer,
                "connections refused: all {CONNECTIONS_MAX} places are taken"),
        }
    }
}

/// Serves the requests of one connection, one after the other.
async fn answer(
    stream: TcpStream,
    write_timeout: Duration,
    peer: SocketAddr,
    app: Router,
    stop: CancellationToken,
) {
    // Head and body may be two packets: the second one must not wait for the client's
    // acknowledgement of the first, which takes 40 ms. If the option cannot be set, answers are
    // merely slow.
    drop(stream.set_nodelay(true));
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = app.call(request.map(Body::new));
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    let stream = TokioIo::new(WriteTimeout::new(stream, write_timeout));
    let connection = server.serve_connection(stream, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // The client went away or did not send HTTP: not worth a warning.
        tracing::debug!(%error, %peer, "a connection ended");
    }
}
