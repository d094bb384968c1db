//! Claim mode `lanes`: an outbox is divided into lanes by a hash of the key, and a relay that owns
//! a lane reads it in id order without marking rows.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use serde::{Deserialize, Serialize};

use super::{ClaimLimit, Cursor, Lease, Result};
use crate::StoreError;
use crate::event::Event;

/// How relays share the work on an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// Relays compete for rows; a claim marks each row. Order is not guaranteed.
    #[default]
    Rows,
    /// Relays share lanes; events of one key arrive in order.
    Lanes,
}

impl ClaimMode {
    /// Returns the spelling in tables, configuration and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Lanes => "lanes",
        }
    }
}

impl fmt::Display for ClaimMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::str::FromStr for ClaimMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "rows" => Ok(Self::Rows),
            "lanes" => Ok(Self::Lanes),
            _ => Err(format!("unknown claim mode `{text}`; allowed: rows, lanes")),
        }
    }
}

/// The claim mode of an outbox, as stored in the database. `epoch` increases with every change; a
/// relay works in a mode only after all live relays have left the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mode {
    /// The mode.
    pub claim: ClaimMode,
    /// Number of changes so far.
    pub epoch: i64,
}

/// A fixed share of an outbox in mode `rows`: the rows with `id % of = index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// Number of shares.
    pub of: u32,
    /// Number of this share, from 0.
    pub index: u32,
}

impl Share {
    /// All rows.
    pub const WHOLE: Self = Self { of: 1, index: 0 };
}

/// Number of lanes of an outbox.
pub const LANES: u8 = 64;

/// A set of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneSet(u64);

impl LaneSet {
    /// All lanes.
    pub const ALL: Self = Self(u64::MAX);
    /// No lane.
    pub const NONE: Self = Self(0);

    /// Returns whether the set contains this lane.
    pub fn contains(self, lane: u8) -> bool {
        lane < LANES && self.0 >> lane & 1 == 1
    }

    /// Adds a lane.
    pub fn insert(&mut self, lane: u8) {
        debug_assert!(lane < LANES);
        self.0 |= 1 << lane;
    }

    /// Returns the lanes that are in this set and not in the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the number of lanes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the lanes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..LANES).filter(move |lane| self.contains(*lane))
    }

    /// Returns one bit per lane, for use in statements.
    pub(crate) fn bits(self) -> i64 {
        self.0.cast_signed()
    }
}

impl FromIterator<u8> for LaneSet {
    fn from_iter<I: IntoIterator<Item = u8>>(lanes: I) -> Self {
        let mut set = Self::NONE;
        lanes.into_iter().for_each(|lane| set.insert(lane));
        set
    }
}

impl fmt::Debug for LaneSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

/// A lane that a relay owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Number of the lane.
    pub lane: u8,
    /// Increases with every take and release, so that a late release finds another version.
    pub version: i64,
    /// Number of consecutive owners that died.
    pub crash_count: i32,
    /// The largest id that the last owner had in flight, if it recorded one.
    pub flight_to: Option<i64>,
}

/// The owner of a lane, as read without locks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneOwner {
    /// Number of the lane.
    pub lane: u8,
    /// The relay that took it; it may be dead already.
    pub relay_id: Option<String>,
    /// Number of consecutive owners that died.
    pub crash_count: i32,
}

/// A row of a lane.
#[derive(Debug, Clone)]
pub struct LaneRow {
    /// The event.
    pub event: Event,
    /// Its lane; 0 if the store has no lanes.
    pub lane: u8,
    /// Time until it is due, on the database's clock.
    pub due_in: Duration,
    /// A relay in mode `rows` still holds it.
    pub busy: bool,
}

/// The result of a read of lanes.
#[derive(Debug, Default)]
pub struct LaneRead {
    /// The rows, by ascending id.
    pub rows: Vec<LaneRow>,
    /// There may be more rows.
    pub full: bool,
}

impl LaneRead {
    /// Builds the result of a statement that stopped at a limit: the maximum number of rows, or the
    /// first row that reached the maximum number of bytes.
    #[cfg(feature = "postgres")]
    pub(crate) fn within(rows: Vec<LaneRow>, limit: ClaimLimit) -> Self {
        let bytes: u64 = rows.iter().map(|row| row.event.weight_bytes() as u64).sum();
        let full = rows.len() >= limit.rows as usize || bytes >= limit.bytes;
        Self { full: full && !rows.is_empty(), rows }
    }
}

/// An ordering key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// First half of the key.
    pub aggregate_type: String,
    /// Second half of the key.
    pub aggregate_id: String,
}

impl Key {
    pub(crate) fn not_parked(&self) -> StoreError {
        StoreError::Refused(format!(
            "key {} / {} is not parked; `postrider stats` shows the keys that are",
            self.aggregate_type, self.aggregate_id
        ))
    }
}

impl From<&Event> for Key {
    fn from(event: &Event) -> Self {
        Self {
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
        }
    }
}

/// A key whose events wait behind one that cannot be delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockedKey {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// Row id of the head event; `None` if the key is parked and has no live events.
    pub head_id: Option<i64>,
    /// Last error of the head event.
    pub last_error: Option<String>,
    /// Attempts spent on the head event.
    pub retry_count: i32,
    /// When the head event is tried again.
    pub next_retry_at: Option<chrono::DateTime<chrono::Utc>>,
    /// Number of events that wait behind it.
    pub waiting: i64,
    /// The count in `waiting` was cut off.
    pub more: bool,
    /// The key is stopped until an operator releases it.
    pub parked: bool,
}

/// The operations that claim mode `lanes` needs from a store.
///
/// - **Ownership** depends on the relay's lease: a lane can be taken if it has no owner, or if its
///   owner is fenced or gone. So the fence of the lease is the fence of every lane.
/// - **Reads** mark nothing. The owner remembers what it has read.
/// - **Order**: every read returns its rows by ascending id, so the next read continues after the
///   last row of a full one.
#[async_trait]
pub trait Lanes: Send + Sync {
    /// Returns the claim mode of each outbox, by name.
    async fn modes(&self) -> Result<Vec<(String, Mode)>>;

    /// Changes the claim mode and records the operator. Relays follow one by one. Returns the mode
    /// that is now in effect.
    async fn set_mode(&self, outbox: &Outbox, claim: ClaimMode, operator: &str) -> Result<Mode>;

    /// Takes free lanes until the relay owns `lanes_max`, and returns all lanes that it owns. For a
    /// lane of a dead owner the crash is counted, and charged to the event that was alone in flight
    /// there.
    async fn take_lanes(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes_max: usize,
    ) -> Result<Vec<Lane>>;

    /// Returns the owner of each lane, by ascending lane. Locks and changes nothing.
    async fn lane_owners(&self, outbox: &Outbox) -> Result<Vec<LaneOwner>>;

    /// Releases lanes that have nothing in flight. Versions that are not current are ignored.
    async fn release_lanes(&self, outbox: &Outbox, lease: &Lease, lanes: &[Lane]) -> Result<()>;

    /// Reads rows of the lanes above the cursor, due or not, and moves the cursor forward. The
    /// cursor stays behind ids at which a smaller one may still be committed, so a row is returned
    /// again unless its id is `known` or its key is `hidden`. Fails with
    /// [`StoreError::HistoryChanged`] if ids went back: the rows that were read before may be other
    /// events by now.
    async fn read_lanes(
        &self,
        outbox: &Outbox,
        lanes: LaneSet,
        known: &[i64],
        hidden: &[Key],
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<LaneRead>;

    /// Reads rows by id, given in any order; rows that are gone are left out.
    async fn read_ids(&self, outbox: &Outbox, ids: &[i64]) -> Result<Vec<LaneRow>>;

    /// Reads rows of these keys with ids from `from` to `to`, inclusive.
    async fn read_keys(
        &self,
        outbox: &Outbox,
        keys: &[Key],
        from: i64,
        to: i64,
        limit: ClaimLimit,
    ) -> Result<LaneRead>;

    /// Records the largest id in flight in these lanes, before it is sent.
    async fn note_flight(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes: LaneSet,
        flight_to: i64,
    ) -> Result<()>;

    /// Records the one event of that lane that is sent next, with nothing else in flight; `None`
    /// once the destination has answered. If the owner dies in between, the crash is charged to the
    /// event.
    async fn note_suspect(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lane: u8,
        id: Option<i64>,
    ) -> Result<()>;

    /// Resets the crash counts of these lanes.
    async fn clear_crashes(&self, outbox: &Outbox, lease: &Lease, lanes: LaneSet) -> Result<()>;

    /// Parks keys until an operator releases them.
    async fn park_keys(&self, outbox: &Outbox, lease: &Lease, keys: &[Key]) -> Result<()>;

    /// Returns the parked keys.
    async fn parked_keys(&self, outbox: &Outbox) -> Result<Vec<Key>>;

    /// Releases a parked key, and records the operator. Fails with [`StoreError::Refused`] if it is
    /// not parked.
    async fn release_key(&self, outbox: &Outbox, key: &Key, operator: &str) -> Result<()>;

    /// Returns at most `limit` keys that are blocked, those with the oldest event first. They are
    /// searched among the rows that are due next. The events that wait behind them are counted, in
    /// at most `rows_max` rows each.
    async fn blocked_keys(
        &self,
        outbox: &Outbox,
        limit: u32,
        rows_max: i64,
    ) -> Result<Vec<BlockedKey>>;
}

/// A lane that a relay may take, with its row locked.
#[derive(Debug, Clone)]
pub(crate) struct FoundLane {
    pub(crate) lane: Lane,
    pub(crate) owner: Option<String>,
    pub(crate) owner_lives: bool,
    pub(crate) suspect_id: Option<i64>,
}

/// A lane to take, and whether its owner died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Take {
    pub(crate) lane: Lane,
    pub(crate) died: bool,
    /// The event that was alone in flight when the owner died.
    pub(crate) suspect_id: Option<i64>,
}

/// Chooses the relay's own lanes, and free ones up to the limit.
pub(crate) fn choose_lanes(found: &[FoundLane], relay_id: &str, lanes_max: usize) -> Vec<Take> {
    let mine = |found: &FoundLane| found.owner.as_deref() == Some(relay_id);
    let room = lanes_max.saturating_sub(found.iter().filter(|found| mine(found)).count());
    let free = found.iter().filter(|found| !mine(found) && !found.owner_lives).take(room);
    found
        .iter()
        .filter(|found| mine(found))
        .chain(free)
        .map(|found| {
            let died = found.owner.is_some() && !mine(found);
            Take {
                lane: Lane {
                    version: found.lane.version + 1,
                    crash_count: found.lane.crash_count + i32::from(died),
                    ..found.lane
                },
                died,
                suspect_id: found.suspect_id.filter(|_| died),
            }
        })
        .collect()
}

pub(crate) fn mode_of(claim: &str, epoch: i64) -> Result<Mode> {
    let claim = claim.parse().map_err(StoreError::Schema)?;
    Ok(Mode { claim, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_lanes_holds_what_was_put_in() {
        let set: LaneSet = [0, 5, 63].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 5, 63]);
        assert_eq!((set.len(), set.contains(5), set.contains(6)), (3, true, false));
        assert!(!set.contains(64) && !LaneSet::ALL.contains(200));
        assert_eq!(LaneSet::ALL.without(set).len(), 61);
        assert!(LaneSet::NONE.is_empty());
    }

    fn found(lane: u8, owner: Option<&str>, owner_lives: bool) -> FoundLane {
        FoundLane {
            lane: Lane { lane, version: 7, crash_count: 1, flight_to: Some(40) },
            owner: owner.map(str::to_owned),
            owner_lives,
            suspect_id: Some(33),
        }
    }

    #[test]
    fn lanes_are_taken_from_nobody_and_from_the_dead_only() {
        let lanes = [
            found(0, Some("other"), true),
            found(1, None, false),
            found(2, Some("dead"), false),
            found(3, Some("me"), true),
            found(4, None, false),
        ];
        let taken = choose_lanes(&lanes, "me", 3);
        assert_eq!(taken.iter().map(|t| t.lane.lane).collect::<Vec<_>>(), [3, 1, 2]);
        assert!(taken.iter().all(|t| t.lane.version == 8));
        let crashes: Vec<_> = taken.iter().map(|t| (t.lane.crash_count, t.suspect_id)).collect();
        assert_eq!(crashes, [(1, None), (1, None), (2, Some(33))], "only death is charged");
        assert_eq!(choose_lanes(&lanes, "me", 0).len(), 1, "what is owned is answered");
    }
}
