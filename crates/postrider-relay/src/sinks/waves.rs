//! Many keys at once, and within a key one event after the other where order is kept. For sinks
//! whose server says yes or no to each message by itself.
//!
//! A wave is what is under way at the same time: the whole batch, or, where order is kept, the next
//! event of each key. The next wave begins when the server has answered for all of this one.
//!
//! An event can make a server close the connection under all others. So what was under way when a
//! connection broke is sent again in halves, until the event that breaks it is alone.

use crate::sink::{Batch, Cause, Outcome};

/// `Down` answers about more than a destination in one call, after which the rest is `Untried`.
const DOWN_PER_CALL_MAX: usize = 5;

/// What became of one message.
pub(super) enum Answer {
    Known(Outcome),
    /// It was sent, and the answer is missing: how that is told, if it is told. It may have arrived,
    /// and it may be the reason.
    Missing(Outcome),
}

/// Sends messages of a batch.
pub(super) trait Publish: Sync {
    /// Sends the events at these places of the batch at once. One answer for each. `apart`: on a
    /// connection that nothing else uses.
    fn publish(&self, places: &[usize], apart: bool) -> impl Future<Output = Vec<Answer>> + Send;
}

/// Publishes every event of the batch. One outcome per event.
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

    /// When a server cannot be reached, everything fails at once; that is one failure.
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

/// The destination is down, whatever the event.
pub(super) fn down(error: impl Into<String>) -> Outcome {
    let (error, cause) = (error.into(), Cause::Destination);
    Outcome::Down { error, retry_after: None, credentials: false, cause }
}

fn caused_by(cause: Cause, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Down { error, retry_after, credentials, .. } => {
            // Our rights are nothing that the event could change.
            let cause = if credentials { Cause::Destination } else { cause };
            Outcome::Down { error, retry_after, credentials, cause }
        }
        other => other,
    }
}
