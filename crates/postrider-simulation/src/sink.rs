//! The simulated sink.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_relay::{Batch, Cause, Outcome, Sink, SinkError};
use postrider_store::Event;
use rand::RngExt;
use tokio::time::sleep;

use crate::database::number_of;
use crate::world::{Process, World};

/// Answer of a destination that is down.
pub(crate) const DOWN: &str = "the destination is down";

/// Share of the calls that hang, and of the deliveries whose answer is lost.
const HANGS: f64 = 0.01;
const LOST_ANSWERS: f64 = 0.02;

pub(crate) struct SimulatedSink {
    pub(crate) world: Arc<World>,
    pub(crate) process: Arc<Process>,
    pub(crate) outbox: &'static str,
}

/// The relay that sends a batch, and whether it was registered when it began to send.
struct Sender {
    relay: String,
    lived: bool,
}

impl SimulatedSink {
    fn down(error: &str) -> Outcome {
        Outcome::Down {
            error: error.to_owned(),
            retry_after: None,
            credentials: false,
            cause: Cause::Unknown,
        }
    }

    fn place_of(&self, event: &Event) -> usize {
        let key = event.aggregate_id.parse().unwrap_or_default();
        self.world.scenario.destination_of(key, number_of(&event.event_id))
    }

    /// Returns the outcome of one event at its destination.
    fn answer(&self, event: &Event, sender: &Sender) -> Outcome {
        let (world, number) = (&self.world, number_of(&event.event_id));
        let now = world.now();
        let state = &mut *world.state();
        let place = self.place_of(event);
        if state.destinations[place].down.is_some() {
            return Self::down(DOWN);
        }
        let behaviour = state.behaviours.entry(number).or_default();
        if behaviour.kills {
            self.process.kill(state);
            return Outcome::Untried;
        }
        if behaviour.rejected {
            return Outcome::Rejected { error: "rejected".to_owned(), detail: None };
        }
        if behaviour.failures > 0 {
            behaviour.failures -= 1;
            return Outcome::Retry { error: "failed".to_owned() };
        }
        self.check_repeat(state, number, sender);
        state.checker.received(now, self.outbox, number);
        let faulty = world.scenario.sink_faults && state.faults;
        if faulty && state.random.random_bool(LOST_ANSWERS) {
            return Self::down("the answer was lost");
        }
        Outcome::Delivered
    }

    /// Checks a copy. It is excused if the previous one was not known to be delivered, if the relay
    /// that knew it is gone, or if its own sender was taken for dead while it was on its way.
    fn check_repeat(&self, state: &mut crate::world::State, number: u64, sender: &Sender) {
        let known = state.checker.known(self.outbox, number);
        // Only the answer to this copy counts from now on.
        let (id, answered) = (known.id, known.answered.take());
        let Some(relay) = answered else { return };
        let known = state.checker.known(self.outbox, number);
        if known.excuses > 0 {
            known.excuses -= 1;
            return;
        }
        let overtaken = sender.lived && !state.database.lives(&sender.relay);
        if !overtaken && state.database.lives(&relay) && !state.killed.contains(&relay) {
            let seen = format!("#{id} was delivered, {relay} knew it and lives");
            state.checker.violated("a repeat has a cause", seen);
        }
    }
}

#[async_trait]
impl Sink for SimulatedSink {
    fn name(&self) -> &str {
        "simulated"
    }

    fn destination<'a>(&'a self, event: &'a Event) -> Cow<'a, str> {
        Cow::Owned(self.place_of(event).to_string())
    }

    fn only_destination(&self) -> Option<&str> {
        (self.world.scenario.destinations == 1).then_some("0")
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let (world, process) = (&self.world, &self.process);
        // The relay that receives the answers may have lost its lease by then.
        let relay = process.relay();
        let lived = world.state().database.lives(&relay);
        let sender = Sender { relay, lived };
        world.travel(process, false).await;
        let hangs = world.scenario.sink_faults && world.state().faults && world.draw(HANGS);
        let mut stopped = BTreeSet::new();
        let (mut outcomes, mut delivered) = (Vec::new(), Vec::new());
        for event in batch.events {
            if stopped.contains(&event.key()) || !batch.may_start() {
                stopped.insert(event.key());
                outcomes.push(Outcome::Untried);
                continue;
            }
            if world.draw(0.2) {
                world.travel(process, world.scenario.sink_faults).await;
            }
            let outcome = self.answer(event, &sender);
            if process.is_killed() {
                pending::<()>().await;
            }
            match outcome {
                Outcome::Delivered => delivered.push(number_of(&event.event_id)),
                _ if batch.keep_order => drop(stopped.insert(event.key())),
                _ => {}
            }
            outcomes.push(outcome);
        }
        if hangs {
            sleep(Duration::from_secs(3_600)).await;
        }
        world.travel(process, false).await;
        let checker = &mut world.state().checker;
        for number in delivered {
            checker.known(self.outbox, number).answered = Some(sender.relay.clone());
        }
        outcomes
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}
