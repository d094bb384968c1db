//! Signals that stop a process.

use tokio_util::sync::CancellationToken;

/// Stops gracefully on SIGTERM (a deployment) or SIGINT (Ctrl-C); a second signal stops at once.
pub async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be caught; stop with SIGKILL, nothing is lost by it");
        return;
    };
    let mut next = async || {
        tokio::select! { _ = term.recv() => {}, _ = interrupt.recv() => {} }
    };
    next().await;
    stop.cancel();
    next().await;
    tracing::warn!("second signal: stopping at once; what is in flight is recovered by others");
    std::process::exit(1);
}
