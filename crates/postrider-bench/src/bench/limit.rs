//! The limits: the rates of the store and of the sink for a client that does nothing else.

use std::time::Instant;

use postrider_command::Failure;
use postrider_command::output::number;
use postrider_store::ClaimMode;
use serde::Serialize;

use super::event::Maker;
use super::numbers::rounded;
use super::sinks::Sinks;
use super::stage::{Stage, bar};
use crate::cli::{EventArgs, RelayArgs};

/// Events per second.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Limits {
    /// The same rows, read by primary key in chunks of the same size, and deleted.
    pub(super) store_limit_events_per_s: f64,
    /// The same events, passed to the sink directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sink_limit_events_per_s: Option<f64>,
}

impl Limits {
    /// Measures both, on a fresh outbox with the same contents as the one that was drained.
    pub(super) async fn measure(
        stage: &Stage,
        sinks: &Sinks,
        (event, relay): (&EventArgs, &RelayArgs),
        events: u64,
    ) -> Result<Self, Failure> {
        let copy = stage.outbox("_limit").await?;
        stage.fill(&copy, &Maker::new(event.keys, event.payload), events).await?;
        let bar = bar("limit", events);
        let started = Instant::now();
        let taken =
            stage.bare.take_out(copy.table(), relay.batch, |taken| bar.set_position(taken)).await?;
        let seconds = started.elapsed().as_secs_f64();
        bar.finish_and_clear();
        stage.drop_outbox(&copy).await?;
        if taken != events {
            let why = format!("the barest loop took {taken} of {events} rows: something else did");
            return Err(Failure::Partly(why));
        }
        let sink_limit_events_per_s = match sinks.is_null() {
            true => None,
            false => {
                let keep_order = relay.claim == ClaimMode::Lanes;
                let shape = (event.keys, event.payload);
                Some(rounded(sinks.feed(events, shape, relay.batch, keep_order).await?, 1))
            }
        };
        let store_limit_events_per_s = rounded(events as f64 / seconds, 1);
        Ok(Self { store_limit_events_per_s, sink_limit_events_per_s })
    }

    pub(super) fn smaller(&self) -> f64 {
        let store = self.store_limit_events_per_s;
        self.sink_limit_events_per_s.map_or(store, |sink| sink.min(store))
    }

    /// Describes the smaller limit, for people.
    pub(super) fn against(&self) -> String {
        let (store, limit) = (self.store_limit_events_per_s, number(self.smaller() as i128));
        match self.sink_limit_events_per_s {
            Some(sink) if sink < store => {
                format!("of what the sink takes when it is fed directly ({limit} events/s)")
            }
            _ => format!("of the barest client loop on the same rows ({limit} events/s)"),
        }
    }

    pub(super) fn figures(&self) -> Vec<(String, String)> {
        let rate =
            |name: &str, rate: f64| (name.to_owned(), format!("{} events/s", number(rate as i128)));
        let sink = self.sink_limit_events_per_s.map(|limit| rate("limit of the sink", limit));
        [Some(rate("limit of the store", self.store_limit_events_per_s)), sink]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_counts() {
        let null = Limits { store_limit_events_per_s: 100.0, sink_limit_events_per_s: None };
        assert_eq!((null.smaller(), null.figures().len()), (100.0, 1));
        assert!(null.against().contains("barest client loop"));
        let slow_sink = Limits { sink_limit_events_per_s: Some(40.0), ..null };
        assert_eq!((slow_sink.smaller(), slow_sink.figures().len()), (40.0, 2));
        assert!(slow_sink.against().contains("fed directly (40 events/s)"));
        let fast_sink = Limits { sink_limit_events_per_s: Some(400.0), ..null };
        assert_eq!(fast_sink.smaller(), 100.0);
        assert!(fast_sink.against().contains("barest client loop"));
    }
}
