//! The live stream of statistics: one query serves all watchers.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;

use crate::http::ServerState;
use crate::http::access::Caller;
use crate::http::feed::Snapshot;
use crate::http::problem::Problem;

/// Interval of keep-alive messages, by which proxies and clients see that the stream is alive.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// The outboxes with their statistics, again and again (server-sent events named `outboxes`, each
/// as `GET /api/v1/outboxes` answers). Each event is whole: whoever reconnects needs nothing of
/// before.
#[utoipa::path(
    operation_id = "stream_outboxes",
    get, path = "/api/v1/stream", tag = "outboxes",
    responses((status = 200, description = "The stream", body = Snapshot,
               content_type = "text/event-stream"))
)]
pub(super) async fn stream(
    State(state): State<ServerState>,
    caller: Caller,
) -> Result<Response, Problem> {
    // New watchers get a snapshot at once.
    state.feed.recent(&state).await?;
    let watcher = state.feed.watch().ok_or_else(|| {
        Problem::new(503, "too many clients watch already; see `stream_clients_max` in [api]")
            .retry_after(5)
    })?;
    // The stream ends when the server stops, which it would otherwise delay. It also ends when its
    // caller would no longer be admitted: the token was removed or has expired, or the session
    // ended.
    let snapshots = unfold((watcher, state, caller), async |(mut watcher, state, caller)| {
        let snapshot = state.stop.run_until_cancelled(watcher.next()).await??;
        if !state.access.still_admits(&caller) {
            return None;
        }
        let event = Event::default().event("outboxes").id(snapshot.number.to_string());
        let event = event.json_data(&*snapshot).unwrap_or_default();
        Some((Ok::<_, Infallible>(event), (watcher, state, caller)))
    });
    let alive = KeepAlive::new().interval(HEARTBEAT_EVERY);
    Ok(Sse::new(snapshots).keep_alive(alive).into_response())
}
