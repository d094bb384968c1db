//! Readiness. Probes need no token and may come in large numbers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use postrider::Outbox;
use postrider_relay::TROUBLE_KIND;
use postrider_store::SchemaState;
use tokio::time::Instant;

use super::ServerState;
use super::problem::Problem;

/// Time limit for the database to answer a probe. The store's own limit on waiting for a connection
/// is longer than probes usually wait.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
/// The database is queried at most once in this time, however many probes come.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const NO_ANSWER: &str = "the database does not answer";
const NO_WRITE: &str = "the database does not take writes: the last heartbeat of this relay \
     failed; the log says why";

/// Ready, or the reason why not.
type Verdict = Result<(), String>;

/// The last result, shared by all probes that follow soon.
#[derive(Debug, Default)]
pub(crate) struct Readiness(tokio::sync::Mutex<Option<(Instant, Verdict)>>);

impl Readiness {
    /// Returns the last result, or a new one if that is too old. Probes that arrive during a check
    /// wait for its result.
    async fn verdict(&self, look: impl Future<Output = Verdict>) -> Verdict {
        let mut last = self.0.lock().await;
        if let Some((at, verdict)) = &*last
            && at.elapsed() < LOOK_EVERY
        {
            return verdict.clone();
        }
        let verdict = look.await;
        *last = Some((Instant::now(), verdict.clone()));
        verdict
    }
}

/// Ready means: the database answers and takes writes, and its tables fit this version.
pub(super) async fn ready(State(state): State<ServerState>) -> Response {
    // A task of its own: if the client of a check hung up, no result would be saved, and many such
    // clients could query the database without limit.
    let asking = tokio::spawn(async move {
        let looking = state.clone();
        state.readiness.verdict(look(looking)).await
    });
    match asking.await.unwrap_or_else(|_| Err(NO_ANSWER.to_owned())) {
        Ok(()) => "ready\n".into_response(),
        Err(why) => Problem::new(503, why).into_response(),
    }
}

async fn look(state: ServerState) -> Verdict {
    let outboxes: Vec<Outbox> = state.outboxes.iter().map(|s| s.outbox.clone()).collect();
    let store = Arc::clone(&state.store);
    match tokio::time::timeout(READY_TIMEOUT, store.schema_state(&outboxes)).await {
        Ok(Ok(SchemaState::Ready)) => works(&state),
        Ok(Ok(SchemaState::NeedsMigration(what) | SchemaState::TooNew(what))) => Err(what),
        // The database's error is for the log only: it may name hosts and users.
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            Err(NO_ANSWER.to_owned())
        }
        Err(_) => Err(NO_ANSWER.to_owned()),
    }
}

/// Checks that the relay can write, which its heartbeat tries every second, and that it works on
/// every outbox. The reason is in the alert and in the log, not in the answer: it may name hosts
/// and users.
fn works(state: &ServerState) -> Verdict {
    if state.heartbeat_fails.load(Ordering::Relaxed) {
        return Err(NO_WRITE.to_owned());
    }
    let active = state.alerts.lists().active.into_iter();
    let troubled: Vec<String> = active
        .filter_map(|alert| Some(alert.kind.strip_prefix(TROUBLE_KIND)?.to_owned()))
        .collect();
    match troubled.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "not delivered by this relay, because its work fails repeatedly: outbox {}; see the \
             alerts and the log",
            troubled.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_probes_asks_the_database_once_a_second() {
        let (readiness, looks) = (Readiness::default(), AtomicU32::new(0));
        let look = async || {
            looks.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err("away".to_owned())
        };
        let crowd = (0..100).map(|_| readiness.verdict(look()));
        let answers = futures_util::future::join_all(crowd).await;
        assert!(answers.iter().all(|answer| answer == &Err("away".to_owned())), "{answers:?}");
        assert_eq!(looks.load(Ordering::Relaxed), 1);
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(readiness.verdict(async { Ok(()) }).await, Ok(()), "it is asked again");
    }
}
