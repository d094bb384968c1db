//! Precautions after a crash: fewer rows in flight, and one at a time if relays died in a row.

use std::sync::Arc;
use std::time::Duration;

use postrider_store::{Lane, LaneSet, SUSPECT_CRASHES, StoreError};
use tokio::time::Instant;

use super::Reader;

/// Maximum number of rows in flight after a crash, recorded before they are sent, so that another
/// crash leaves few suspects.
pub(super) const CAREFUL_ROWS: u32 = 500;
/// After this long with nothing to send, a crash is forgotten.
const CALM_WAIT: Duration = Duration::from_secs(60);
/// Rows per read while events are sent alone.
pub(super) const SUSPECT_ROWS: u32 = 100;

impl Reader {
    /// Remembers which lanes lost their owner in a crash.
    pub(super) fn be_careful(&mut self) {
        let crashed = |lane: &&Lane| lane.crash_count > 0;
        self.careful = self.owned.iter().filter(crashed).map(|lane| lane.lane).collect();
        // After this many rows, none of those in flight at the time was the cause.
        self.calm_in = self.config().lane_limits.load_rows_max.max(4 * CAREFUL_ROWS as usize);
        let suspected = |lane: &&Lane| lane.crash_count >= SUSPECT_CRASHES;
        let flights =
            self.owned.iter().filter(suspected).filter_map(|l| Some((l.lane, l.flight_to?)));
        let flights: Vec<(u8, i64)> = flights.collect();
        self.suspected = flights.iter().map(|(lane, _)| *lane).collect();
        self.suspect_to = flights.iter().map(|(_, to)| *to).max().unwrap_or(0);
        if !self.suspected.is_empty() {
            tracing::warn!(
                outbox = self.outbox_name(),
                lanes = self.suspected.len(),
                "relays died here in a row: what they had in flight is sent one by one"
            );
        }
        self.session.board().suspect(self.suspected);
    }

    /// Records how far rows are sent in lanes that had a crash, before they are sent: after another
    /// crash, they are the suspects.
    pub(super) async fn note_flight(&self, flight_to: Option<i64>) -> Result<(), StoreError> {
        let Some(id) = flight_to.filter(|_| !self.careful.is_empty()) else { return Ok(()) };
        let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
        self.store().note_flight(outbox, lease, self.careful, id).await
    }

    /// Sends suspects one by one, with nothing else in flight in this process. The id is recorded
    /// exactly while the event is sent, so that the next owner knows which one it was.
    pub(super) async fn send_alone(&mut self) -> Result<(), StoreError> {
        loop {
            let has_alone = self.session.board().has_alone();
            if !has_alone {
                return Ok(());
            }
            // Acquired before the id is recorded: anything else in flight could be what kills the
            // process.
            let alone = Arc::clone(&self.session.lanes.alone).write_owned().await;
            let event = self.session.board().take_alone();
            let Some(event) = event else { return Ok(()) };
            let lane = self.session.board().lane_of(event.id);
            let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
            let noted = self.store().note_suspect(outbox, lease, lane, Some(event.id)).await;
            if let Err(error) = noted {
                self.session.board().give_up(&event);
                return Err(error);
            }
            tracing::warn!(outbox = outbox.name(), id = event.id, "suspect: delivered alone");
            self.session.deliver_alone(event).await;
            self.store().note_suspect(outbox, lease, lane, None).await?;
            drop(alone);
        }
    }

    /// Ends the precautions once everything that was in flight at the crash is done.
    pub(super) async fn calm_down(&mut self) -> Result<(), StoreError> {
        let board_loaded = |lanes| self.session.board().is_loaded(lanes);
        if !self.suspected.is_empty()
            && self.cursor.low >= self.suspect_to
            && !board_loaded(self.suspected)
        {
            self.suspected = LaneSet::NONE;
            self.session.board().suspect(LaneSet::NONE);
        }
        // An event that is due soon may be what kills the process.
        let due_soon = |at: Instant| at <= Instant::now() + CALM_WAIT;
        let waits = self.session.board().next_due().is_some_and(due_soon);
        let idle = self.poll.has_grown() && !waits && !board_loaded(self.careful);
        let calm = self.suspected.is_empty() && (self.calm_in == 0 || idle);
        if calm && !self.careful.is_empty() {
            let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
            self.store().clear_crashes(outbox, lease, self.careful).await?;
            self.careful = LaneSet::NONE;
        }
        Ok(())
    }
}
