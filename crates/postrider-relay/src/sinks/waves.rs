//! Publishes many keys at once, and the events of a key one after the other if order is kept. For
//! sinks whose server accepts or refuses each message individually.
//!
//! A wave is what is in flight at the same time: the whole batch, or, if order is kept, the next
//! event of each key. The next wave begins when the server has answered for all of this one.
//!
//! An event can make a server close the connection for all others. Messages in flight when a
//! connection broke are therefore sent again in halves, until the event that breaks it is alone.

use crate::outcome::{Cause, Outcome};
use crate::sink::Batch;

/// `Down` outcomes in one call that are not about a single destination, after which the rest is
/// `Untried`.
const DOWN_PER_CALL_MAX: usize = 5;

/// The result of one message.
pub(super) enum Answer {
    Known(Outcome),
    /// It was sent and the answer is missing, with the outcome to report if it stays missing. The
    /// message may have arrived, and it may be the cause.
    Missing(Outcome),
}

/// Sends messages of a batch.
pub(super) trait Publish: Sync {
    /// Sends the events at these indexes of the batch at once. Returns one answer for each.
    /// `apart`: on a connection that nothing else uses.
    fn publish(&self, places: &[usize], apart: bool) -> impl Future<Output = Vec<Answer>> + Send;
}

/// Publishes every event of the batch. Returns one outcome per event.
pub(super) async fn in_waves(batch: &Batch<'_>, publisher: &impl Publish) -> Vec<Outcome> {
    let outcomes = vec![Outcome::Untried; batch.events.len()];
    let mut call = Call { batch, outcomes, downs: 0 };
    let mut runs = batch.runs();
    for step in 0.. {
        let wave: Vec<usize> =
            runs.iter().filter_map(|run| run.get(step)).map(|(place, _)| *place).collect();
        if wave.is_empty() || !call.may_go_on() {
            break;
        }
        call.send(wave, publisher).await;
        runs.retain(|run| {
            run.get(step).is_some_and(|(place, _)| call.outcomes[*place] == Outcome::Delivered)
        });
    }
    call.outcomes
}

struct Call<'a> {
    batch: &'a Batch<'a>,
    outcomes: Vec<Outcome>,
    downs: usize,
}

impl Call<'_> {
    fn may_go_on(&self) -> bool {
        self.downs < DOWN_PER_CALL_MAX && self.batch.may_start()
    }

    async fn send(&mut self, wave: Vec<usize>, publisher: &impl Publish) {
        let mut parts = vec![(wave, false)];
        while let Some((part, apart)) = parts.pop() {
            if !self.may_go_on() {
                return;
            }
            let answers = publisher.publish(&part, apart).await;
            let (mut missing, is_alone) = (Vec::new(), part.len() == 1);
            for (place, answer) in part.into_iter().zip(answers) {
                match answer {
                    Answer::Known(outcome) => self.settle(place, outcome),
                    Answer::Missing(outcome) => missing.push((place, outcome)),
                }
            }
            let out_of_time = !self.batch.may_start();
            if out_of_time || (is_alone && apart) {
                let cause = if out_of_time { Cause::Destination } else { Cause::Unknown };
                for (place, outcome) in missing {
                    self.settle(place, caused_by(cause, outcome));
                }
            } else if !missing.is_empty() {
                let places: Vec<usize> = missing.into_iter().map(|(place, _)| place).collect();
                let halves = places.chunks(places.len().div_ceil(2));
                parts.extend(halves.rev().map(|half| (half.to_vec(), true)));
            }
        }
    }

    /// Sets an outcome. If a server cannot be reached, everything fails at once, so only a few
    /// failures are counted.
    fn settle(&mut self, place: usize, outcome: Outcome) {
        if let Outcome::Down { cause: Cause::Unknown | Cause::Server, .. } = outcome {
            self.downs += 1;
            if self.downs > DOWN_PER_CALL_MAX {
                return;
            }
        }
        self.outcomes[place] = outcome;
    }
}

/// Builds the outcome for a destination that is down, independent of the event.
pub(super) fn down(error: impl Into<String>) -> Outcome {
    let (error, cause) = (error.into(), Cause::Destination);
    Outcome::Down { error, retry_after: None, credentials: false, cause }
}

fn caused_by(cause: Cause, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Down { error, retry_after, credentials, .. } => {
            // The event cannot change the relay's credentials, so it is not the cause.
            let cause = if credentials { Cause::Destination } else { cause };
            Outcome::Down { error, retry_after, credentials, cause }
        }
        other => other,
    }
}
