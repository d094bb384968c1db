//! The reader of a session: reads lanes in id order, heads that are due, and keys that catch up. It
//! also takes and releases lanes.

mod after_crash;

use std::sync::Arc;
use std::time::Duration;

use postrider::internal::DoublingWait;
use postrider_store::{ClaimLimit, Cursor, Database, Lane, LaneSet, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::after_crash::{CAREFUL_ROWS, SUSPECT_ROWS};
use super::board::Board;
use super::ownership::{fair_share, surplus};
use super::session::Session;
use crate::config::OutboxConfig;
use crate::delivery::trouble::Step;
use crate::lease::Membership;
use crate::telemetry::{self, label};

/// Wait before the first poll after a read that found something; it doubles up to the idle poll.
const POLL_FIRST: Duration = Duration::from_millis(5);
/// First and longest wait after a failed read.
const REPEAT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a read of lanes is valid as a check of the table's history: no server fails over
/// faster.
const HISTORY_FRESH: Duration = Duration::from_millis(100);
pub(super) struct Reader {
    session: Arc<Session>,
    memberships: watch::Receiver<Membership>,
    owned: Vec<Lane>,
    /// The store may have lanes recorded for this relay that are not in `owned`: it was not asked
    /// yet, or its answer has not arrived.
    unsure: bool,
    cursor: Cursor,
    heads_first: bool,
    poll: DoublingWait,
    repeat: DoublingWait,
    /// Lanes whose last owner died, and the number of rows until that is forgotten.
    careful: LaneSet,
    calm_in: usize,
    /// Lanes in which events up to `suspect_to` are sent alone.
    suspected: LaneSet,
    suspect_to: i64,
}

/// The step after a round.
enum Next {
    AtOnce,
    Wait(Duration),
}

impl Reader {
    pub(super) fn new(session: Arc<Session>) -> Self {
        let memberships = session.lanes.lease_keeper.memberships();
        let idle_poll = session.lanes.config.preset.idle_poll;
        Self {
            session,
            memberships,
            owned: Vec::new(),
            unsure: true,
            cursor: Cursor::new(),
            heads_first: false,
            poll: DoublingWait::new(POLL_FIRST, idle_poll),
            repeat: DoublingWait::new(REPEAT.0, REPEAT.1),
            careful: LaneSet::NONE,
            calm_in: 0,
            suspected: LaneSet::NONE,
            suspect_to: 0,
        }
    }

    /// Reads until stopped or until the session is lost. Both interrupt waits but never a call to
    /// the store: lanes would be owned without the relay knowing.
    pub(super) async fn run(&mut self, stop: &CancellationToken) {
        let mut wakes = self.session.lanes.waker.subscribe();
        let mut look_round = true;
        while !stop.is_cancelled() && !self.session.lost.is_cancelled() {
            // An event appended from here on may be missed by the read, so its wake-up must trigger
            // another one.
            wakes.mark_unchanged();
            let round = self.round(look_round).await;
            look_round = false;
            let trouble = &self.session.lanes.settler.trouble;
            match &round {
                Ok(_) => trouble.succeeded(Step::Claim),
                Err(error) => trouble.failed(Step::Claim, error),
            }
            let wait = match round {
                Ok(Next::AtOnce) => continue,
                Ok(Next::Wait(wait)) => {
                    self.repeat.reset();
                    wait
                }
                Err(StoreError::LeaseLost) => {
                    self.session.lanes.lease_keeper.lost();
                    return;
                }
                Err(error @ StoreError::HistoryChanged(_)) => {
                    // The ids on the board may belong to other rows by now.
                    self.session.lanes.pipeline.report_changed_history(&error);
                    self.session.lost.cancel();
                    return;
                }
                Err(error) => {
                    let outbox = self.outbox_name();
                    tracing::warn!(outbox, %error, "read failed; repeating");
                    look_round = true;
                    self.repeat.take()
                }
            };
            let pipeline = &self.session.lanes.pipeline;
            let idle = pipeline.health.rest(Instant::now()).is_none();
            tokio::select! {
                // Rare events come first: settles wake the reader all the time.
                biased;
                () = stop.cancelled() => {}
                () = self.session.lost.cancelled() => {}
                changed = self.memberships.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    look_round = true;
                }
                () = pipeline.came_back.notified() => {
                    self.session.board().all_due(Instant::now());
                    self.poll.reset();
                }
                _ = wakes.changed(), if idle => self.poll.reset(),
                () = self.session.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn round(&mut self, look_round: bool) -> Result<Next, StoreError> {
        if look_round || self.unsure {
            self.compare_lanes().await?;
            self.share_lanes().await?;
            let notes = self.session.board().park_notes();
            let parked = self.store().parked_keys(&self.config().outbox).await?;
            self.session.board().park(&parked, notes);
        }
        self.hand_over().await?;
        if self.session.board().lanes().is_empty() {
            // Waits until a heartbeat shows that lanes are free.
            return Ok(Next::Wait(self.config().preset.idle_poll.max(REPEAT.1)));
        }
        self.look_at_history().await?;
        // They take turns: if one of them always has something to read, it would take all the room.
        self.heads_first = !self.heads_first;
        if self.heads_first {
            self.read_heads().await?;
            self.read_catch_ups().await?;
        } else {
            self.read_catch_ups().await?;
            self.read_heads().await?;
        }
        let more = self.read_lanes().await?;
        self.session.wake_workers();
        self.send_alone().await?;
        self.calm_down().await?;
        let (full, catches_up, next_due) = {
            let board = self.session.board();
            (!self.has_room(&board), board.catches_up(), board.next_due())
        };
        if !full && (more || catches_up) {
            return Ok(Next::AtOnce);
        }
        let poll = self.poll.take();
        // Without room, the settle that makes some wakes the reader.
        let next_due = next_due.filter(|_| !full);
        let due_in = next_due.map(|at| at.saturating_duration_since(Instant::now()));
        Ok(Next::Wait(due_in.map_or(poll, |due| due.min(poll))))
    }

    /// Compares the lanes that are served with those that the store has recorded for this relay. A
    /// server that came back with an older state may have given some of them to other relays, or
    /// others to this one.
    async fn compare_lanes(&mut self) -> Result<(), StoreError> {
        if self.unsure || !self.session.board().leaving().is_empty() {
            return Ok(());
        }
        let owners = self.store().lane_owners(&self.config().outbox).await?;
        let relay_id = Some(&self.session.held.lease.relay_id);
        let ours = owners.iter().filter(|owner| owner.relay_id.as_ref() == relay_id);
        let ours: LaneSet = ours.map(|owner| owner.lane).collect();
        let served: LaneSet = self.owned.iter().map(|lane| lane.lane).collect();
        let lost = served.without(ours);
        if !lost.is_empty() {
            // A relay that was declared dead has lost its lanes, too. A call that checks the lease
            // tells the two apart, whatever happened since the list was read.
            let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
            self.store().take_lanes(outbox, lease, 0).await?;
            return Err(StoreError::HistoryChanged(format!(
                "{} lanes of this relay belong to others in the store, although its lease holds",
                lost.len()
            )));
        }
        self.unsure = !ours.without(served).is_empty();
        Ok(())
    }

    /// Takes lanes up to the fair share, and begins to leave those above it.
    async fn share_lanes(&mut self) -> Result<(), StoreError> {
        let share = self.share();
        let kept = self.owned.len() - self.session.board().leaving().len();
        // Until the answer arrives, this relay may own lanes without knowing. No relay would serve
        // them, so it asks again even if its share has become smaller.
        if (kept < share || self.unsure) && self.session.board().leaving().is_empty() {
            let before = self.owned.len();
            self.unsure = true;
            let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
            self.owned = self.store().take_lanes(outbox, lease, share).await?;
            self.unsure = false;
            let lanes: LaneSet = self.owned.iter().map(|lane| lane.lane).collect();
            self.session.board().serve(lanes);
            self.be_careful();
            self.gauge_lanes();
            if self.owned.len() > before {
                let taken = self.owned.len() - before;
                tracing::info!(
                    outbox = self.outbox_name(),
                    taken,
                    owned = self.owned.len(),
                    "lanes"
                );
            }
        }
        let kept = self.owned.len() - self.session.board().leaving().len();
        if kept > share {
            let leave = surplus(&self.owned, share);
            self.session.board().leave(leave);
        }
        Ok(())
    }

    fn share(&self) -> usize {
        let store = &self.session.lanes.settler.store;
        let membership = self.memberships.borrow();
        let serving = membership.serving(self.outbox_name());
        if !store.capabilities().shares_lanes {
            return fair_share(0, 1);
        }
        let rank = serving.iter().position(|id| *id == self.session.held.lease.relay_id);
        // Not in the membership list yet: the next heartbeat adds it.
        rank.map_or(0, |rank| fair_share(rank, serving.len()))
    }

    /// Releases lanes in which nothing is in flight any longer.
    async fn hand_over(&mut self) -> Result<(), StoreError> {
        let left = self.session.board().left();
        if left.is_empty() {
            return Ok(());
        }
        let lanes: Vec<Lane> =
            self.owned.iter().copied().filter(|lane| left.contains(lane.lane)).collect();
        let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
        // Whether or not the answer is lost, nothing is sent in these lanes until they are taken
        // again. Taking them changes their version, so that a late release has no effect.
        self.store().release_lanes(outbox, lease, &lanes).await?;
        self.owned.retain(|lane| !left.contains(lane.lane));
        self.session.board().forget(left);
        self.gauge_lanes();
        tracing::info!(
            outbox = self.outbox_name(),
            given = left.len(),
            owned = self.owned.len(),
            "lanes"
        );
        Ok(())
    }

    /// Releases all lanes. Call it with nothing in flight. Returns whether it succeeded.
    pub(super) async fn release_all(&self) -> bool {
        let (outbox, lease) = (&self.config().outbox, &self.session.held.lease);
        if !self.session.lanes.lease_keeper.is_current(lease) {
            return true;
        }
        let released = async {
            let owned = match self.unsure {
                true => self.store().take_lanes(outbox, lease, 0).await?,
                false => self.owned.clone(),
            };
            self.store().release_lanes(outbox, lease, &owned).await
        };
        let released = released.await;
        if let Err(error) = &released {
            tracing::warn!(outbox = outbox.name(), %error,
                "lanes not given back; others take them when the lease ends");
        }
        released.is_ok()
    }

    /// Reads lanes first if the last such read is too long ago: only that shows whether the ids on
    /// the board still belong to the same rows.
    async fn look_at_history(&mut self) -> Result<(), StoreError> {
        let fresh = self.cursor.observed_at.is_some_and(|at| at.elapsed() < HISTORY_FRESH);
        let reads_again = self.session.board().reads_again(Instant::now());
        if reads_again && !fresh {
            self.read_lanes().await?;
        }
        Ok(())
    }

    /// Reads heads that are due, as far as there is room.
    async fn read_heads(&mut self) -> Result<(), StoreError> {
        let again_max = self.config().lane_limits.again_max;
        loop {
            let now = Instant::now();
            let ids = {
                let mut board = self.session.board();
                match self.has_room(&board) {
                    true => board.due_heads(now, again_max, self.batch_bytes_max()),
                    false => Vec::new(),
                }
            };
            if ids.is_empty() {
                return Ok(());
            }
            let read = async {
                let rows = self.store().read_ids(&self.config().outbox, &ids).await?;
                self.note_flight(rows.iter().map(|row| row.event.id).max()).await?;
                Ok(rows)
            };
            match read.await {
                Ok(rows) => self.session.board().offer_heads(&ids, rows, Instant::now()),
                Err(error) => {
                    self.session.board().due_again(&ids, now);
                    return Err(error);
                }
            }
        }
    }

    async fn read_catch_ups(&mut self) -> Result<(), StoreError> {
        let again_max = self.config().lane_limits.again_max;
        let asked = {
            let mut board = self.session.board();
            match self.has_room(&board) {
                true => board.catch_ups(again_max),
                false => Vec::new(),
            }
        };
        let Some(from) = asked.iter().map(|catch_up| catch_up.from).min() else { return Ok(()) };
        let keys: Vec<_> = asked.iter().map(|catch_up| catch_up.key.clone()).collect();
        let limit = self.limit();
        let read = async {
            let read =
                self.store().read_keys(&self.config().outbox, &keys, from, i64::MAX, limit).await?;
            self.note_flight(read.rows.last().map(|row| row.event.id)).await?;
            Ok(read)
        };
        match read.await {
            Ok(read) => {
                let now = Instant::now();
                self.session.board().offer_catch_up(&asked, read.rows, read.full, now);
                Ok(())
            }
            Err(error) => {
                self.session.board().catch_up_again(&asked);
                Err(error)
            }
        }
    }

    /// Reads the next rows. Returns whether there is more to read now.
    async fn read_lanes(&mut self) -> Result<bool, StoreError> {
        let limits = self.config().lane_limits;
        if self.cursor.swept_at.elapsed() >= limits.sweep_every {
            self.session.board().sweep = true;
        }
        let limit = self.limit();
        let (lanes, known, hidden) = {
            let mut board = self.session.board();
            let down = self.session.lanes.pipeline.health.rest(Instant::now()).is_some();
            let trouble = &self.session.lanes.settler.trouble;
            let is_full = board.waiting() >= limits.waiting_rows_max;
            match is_full && !down {
                true => trouble.no_room(board.waiting()),
                false => trouble.succeeded(Step::Room),
            }
            if !self.has_room(&board)
                || is_full
                // If everything is down, the waiting rows are enough to find out when it is back.
                || (down && board.waiting() > 0)
            {
                board.stalled = true;
                return Ok(false);
            }
            board.stalled = false;
            if std::mem::take(&mut board.sweep) {
                self.cursor.low = 0;
                self.cursor.swept_at = Instant::now();
            }
            board.reads_from(self.cursor.low);
            (board.lanes(), board.known_above(self.cursor.low), board.hidden_keys())
        };
        let (session, started) = (Arc::clone(&self.session), Instant::now());
        let (store, outbox) = (session.lanes.settler.store.as_ref(), &session.lanes.config.outbox);
        let low = self.cursor.low;
        let read =
            store.read_lanes(outbox, lanes, &known, &hidden, limit, &mut self.cursor).await?;
        if self.cursor.low < low {
            session.board().goes_back_to(self.cursor.low);
        }
        let (found, full) = (read.rows.len(), read.full);
        if found == 0 {
            self.session.board().nothing_new();
            return Ok(false);
        }
        if let Err(error) = self.note_flight(read.rows.last().map(|row| row.event.id)).await {
            // The cursor has passed these rows, and the board does not know them: no later row of
            // their keys may be sent before they are read again.
            self.session.board().sweep = true;
            return Err(error);
        }
        let new = {
            let mut board = self.session.board();
            let new = board.offer(read.rows, full, Instant::now());
            metrics::gauge!(telemetry::BLOCKED_KEYS, label::OUTBOX => self.outbox_name().to_owned())
                .set(board.blocked_keys() as f64);
            new
        };
        if new > 0 {
            self.poll.reset();
            self.calm_in = self.calm_in.saturating_sub(new);
            let name = self.outbox_name().to_owned();
            metrics::histogram!(telemetry::CLAIM_SECONDS, label::OUTBOX => name.clone())
                .record(started.elapsed().as_secs_f64());
            metrics::counter!(telemetry::CLAIMED, label::OUTBOX => name).increment(new as u64);
        }
        Ok(full)
    }

    /// Returns whether more may be read: rows queued or in flight are limited in number and bytes.
    fn has_room(&self, board: &Board) -> bool {
        let rows_max = match self.careful.is_empty() {
            true => board.load_rows_max(),
            false => CAREFUL_ROWS as usize,
        };
        board.load_rows() < rows_max && board.load_bytes() < 2 * self.batch_bytes_max()
    }

    // Shorthands.

    fn batch_bytes_max(&self) -> usize {
        usize::try_from(self.config().batch_bytes_max).unwrap_or(usize::MAX / 2)
    }

    fn config(&self) -> &OutboxConfig {
        &self.session.lanes.config
    }

    fn outbox_name(&self) -> &str {
        self.config().outbox.name()
    }

    fn store(&self) -> &dyn Database {
        self.session.lanes.settler.store.as_ref()
    }

    fn limit(&self) -> ClaimLimit {
        let room = u32::try_from(self.session.board().load_rows_max()).unwrap_or(u32::MAX);
        let rows = match (self.suspected.is_empty(), self.careful.is_empty()) {
            (false, _) => SUSPECT_ROWS,
            (true, false) => CAREFUL_ROWS,
            (true, true) => {
                self.config().preset.batch.max(self.config().lane_limits.read_rows_min).min(room)
            }
        };
        ClaimLimit::new(rows, self.config().batch_bytes_max)
    }

    fn gauge_lanes(&self) {
        metrics::gauge!(telemetry::LANES_OWNED, label::OUTBOX => self.outbox_name().to_owned())
            .set(self.owned.len() as f64);
    }
}
