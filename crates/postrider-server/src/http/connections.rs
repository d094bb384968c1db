//! The listening end: a bounded number of connections, each with a time for its headers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ServerState, router};

/// Connections at the same time; more wait in the operating system's queue.
const CONNECTIONS_MAX: usize = 1_024;
/// Time for a client to send the headers of a request, the idle time between two included.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(60);
/// Beyond the time for one answer, at a stop.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// After a failed accept (out of file handles, say), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until stopped; requests that were accepted are answered.
pub(crate) async fn serve(listener: TcpListener, state: ServerState, stop: CancellationToken) {
    let feeding = tokio::spawn(super::feed::run(state.clone(), stop.clone()));
    let (grace, ending) = (state.request_timeout + STOP_GRACE, state.stop.clone());
    let app = router(state);
    let (places, open) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), TaskTracker::new());
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (app, stop) = (app.clone(), stop.clone());
            open.spawn(async move {
                answer(stream, peer, app, stop).await;
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

/// The requests of one connection, one after the other.
async fn answer(stream: TcpStream, peer: SocketAddr, app: Router, stop: CancellationToken) {
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = app.call(request.map(Body::new));
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS_TIMEOUT);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that went away, or sent no HTTP: its own affair.
        tracing::debug!(%error, %peer, "a connection ended");
    }
}
