//! Many keys at once, and within a key one event after the other where order is kept. For sinks
//! whose server says yes or no to each message by itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use postrider::Event;

use crate::sink::{Batch, Outcome};

/// `Down` answers in one call, after which the rest of the call is `Untried`.
const DOWN_PER_CALL_MAX: usize = 5;

/// Calls `send` for every event, with its place in the batch. One answer per event.
pub(super) async fn in_runs<'a, R>(
    batch: &Batch<'a>,
    send: impl Fn(usize, &'a Event) -> R,
) -> Vec<Outcome>
where
    R: Future<Output = Outcome>,
{
    let downs = AtomicUsize::new(0);
    let (send, downs) = (&send, &downs);
    let deliver = |run: Vec<(usize, &'a Event)>| async move {
        let (mut outcomes, mut stopped) = (Vec::with_capacity(run.len()), false);
        for (index, event) in run {
            let enough = downs.load(Ordering::Relaxed) >= DOWN_PER_CALL_MAX;
            let outcome = if stopped || enough || !batch.may_start() {
                Outcome::Untried
            } else {
                let answer = send(index, event);
                let answer = tokio::time::timeout_at(batch.deadline, answer).await;
                answer.unwrap_or_else(|_| down("no answer in time"))
            };
            stopped |= outcome != Outcome::Delivered;
            outcomes.push((index, counted(outcome, downs)));
        }
        outcomes
    };
    let runs = batch.runs().into_iter().map(deliver);
    let mut outcomes: Vec<_> =
        futures_util::future::join_all(runs).await.into_iter().flatten().collect();
    outcomes.sort_unstable_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The server is down, whatever the event.
pub(super) fn down(error: impl Into<String>) -> Outcome {
    Outcome::Down { error: error.into(), retry_after: None, credentials: false }
}

/// The same for a whole call: a few events stand for the server, the others were not tried.
pub(super) fn all_down(down: &Outcome, count: usize) -> Vec<Outcome> {
    let outcome = |index| if index < DOWN_PER_CALL_MAX { down.clone() } else { Outcome::Untried };
    (0..count).map(outcome).collect()
}

/// When a connection is lost, everything under way fails at once; that is one failure.
fn counted(outcome: Outcome, downs: &AtomicUsize) -> Outcome {
    let is_down = matches!(outcome, Outcome::Down { .. });
    if is_down && downs.fetch_add(1, Ordering::Relaxed) >= DOWN_PER_CALL_MAX {
        return Outcome::Untried;
    }
    outcome
}
