//! Fan-out: an outbox whose sink consists of other outboxes.
//!
//! To reach several sinks, an event goes through one outbox per sink. `FanOut` is the sink of the
//! first outbox: settling copies the event into the outbox of each matching branch, in the
//! transaction that removes it. Each branch then has its own preset, order, breaker and dead
//! letters, independent of the others.

use std::borrow::Cow;

use async_trait::async_trait;
use postrider::Outbox;
use postrider_store::{BRANCHES_MAX, Event};

use crate::message::routes::{Route, RouteSettings};
use crate::message::view::EventView;
use crate::outcome::Outcome;
use crate::sink::{Batch, Sink, SinkError};

/// A branch as configured.
#[derive(Debug, Clone)]
pub struct BranchSettings {
    /// The outbox that receives the copies.
    pub outbox: Outbox,
    /// Pattern of event types, with `*` for any text; absent: all.
    pub event_type: Option<String>,
    /// Pattern of aggregate types, with `*` for any text; absent: all.
    pub aggregate_type: Option<String>,
    /// A condition in CEL; absent: no condition.
    pub filter: Option<String>,
}

/// The branches of an outbox.
pub struct FanOut {
    name: String,
    children: Vec<Outbox>,
    conditions: Vec<Route>,
}

impl FanOut {
    /// Builds the branches from their settings.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(name: &str, branches: &[BranchSettings]) -> Result<Self, SinkError> {
        let wrong = |message: String| SinkError { sink: name.to_owned(), message };
        if branches.is_empty() || branches.len() > BRANCHES_MAX {
            let count = branches.len();
            return Err(wrong(format!(
                "{count} branches; set 1 to {BRANCHES_MAX} [[sink.branch]] blocks"
            )));
        }
        let (mut children, mut conditions) = (Vec::new(), Vec::new());
        for (number, branch) in branches.iter().enumerate() {
            if children.contains(&branch.outbox) {
                return Err(wrong(format!(
                    "two branches lead to outbox `{}`; join their conditions in one `filter`",
                    branch.outbox.name()
                )));
            }
            children.push(branch.outbox.clone());
            let condition = Route::new(&RouteSettings {
                event_type: branch.event_type.clone(),
                aggregate_type: branch.aggregate_type.clone(),
                filter: branch.filter.clone(),
                to: String::new(),
            });
            let condition = condition
                .map_err(|error| wrong(format!("[[sink.branch]] {}: {error}", number + 1)));
            conditions.push(condition?);
        }
        Ok(Self { name: name.to_owned(), children, conditions })
    }

    /// Returns the outboxes of the branches.
    pub fn children(&self) -> &[Outbox] {
        &self.children
    }

    /// Returns the branches that take an event, one bit each. The result depends on the event only.
    ///
    /// # Errors
    /// If a filter cannot be applied to this event.
    pub fn branches(&self, event: &Event) -> Result<u64, String> {
        let view = EventView::new(event);
        let mut branches = 0;
        for (number, condition) in self.conditions.iter().enumerate() {
            let takes = condition.takes(&view);
            let takes =
                takes.map_err(|error| format!("[[sink.branch]] {}: {error}", number + 1))?;
            branches |= u64::from(takes) << number;
        }
        Ok(branches)
    }
}

/// `deliver` sends nothing: an event is copied when it is settled.
#[async_trait]
impl Sink for FanOut {
    fn name(&self) -> &str {
        &self.name
    }

    fn destination<'a>(&'a self, _event: &'a Event) -> Cow<'a, str> {
        Cow::Borrowed(&self.name)
    }

    fn only_destination(&self) -> Option<&str> {
        Some(&self.name)
    }

    async fn deliver(&self, batch: Batch<'_>) -> Vec<Outcome> {
        let outcome = |event: &Event| match self.branches(event) {
            Ok(0) => Outcome::NoRoute {
                error: format!(
                    "no [[sink.branch]] takes event type `{}` of aggregate type `{}`",
                    event.event_type, event.aggregate_type
                ),
            },
            Ok(_) => Outcome::Delivered,
            Err(error) => Outcome::NoRoute { error },
        };
        batch.events.iter().map(outcome).collect()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn close(&self) {}
}
