//! Claim mode `lanes` on the simulated database.

use async_trait::async_trait;
use postrider::Outbox;
use postrider_store::{
    BlockedKey, ClaimLimit, ClaimMode, Cursor, Key, Lane, LaneOwner, LaneRead, LaneRow, LaneSet,
    Lanes, Lease, Mode, Result, SUSPECT_CRASHES, StoreError,
};

use crate::database::{LaneRecord, Row, Time, lane, lane_of, lane_row};
use crate::store::SimulatedStore;
use crate::world::number_of_key;

#[async_trait]
impl Lanes for SimulatedStore {
    async fn modes(&self) -> Result<Vec<(String, Mode)>> {
        self.call(|state, _| {
            let modes = state.database.tables.iter();
            Ok(modes.map(|(name, table)| (name.clone(), table.mode)).collect())
        })
        .await
    }

    async fn set_mode(&self, _: &Outbox, _: ClaimMode, _: &str) -> Result<Mode> {
        Err(StoreError::Refused("not simulated".to_owned()))
    }

    async fn take_lanes(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes_max: usize,
    ) -> Result<Vec<Lane>> {
        self.call(|state, now| {
            state.database.check_lease(lease)?;
            let living: Vec<String> =
                state.database.relays.iter().filter(|r| !r.1.fenced).map(|r| r.0.clone()).collect();
            let table = state.database.table(outbox.name())?;
            let mine = |record: &LaneRecord| record.owner.as_ref() == Some(&lease.relay_id);
            let owned = table.lanes.iter().filter(|record| mine(record)).count();
            let mut room = lanes_max.saturating_sub(owned);
            let (mut suspects, mut lanes) = (Vec::new(), Vec::new());
            for (number, record) in table.lanes.iter_mut().enumerate() {
                let owner_lives = record.owner.as_ref().is_some_and(|o| living.contains(o));
                if !mine(record) {
                    if owner_lives || room == 0 {
                        continue;
                    }
                    room -= 1;
                    if record.owner.is_some() {
                        record.crash_count += 1;
                        suspects.extend(record.suspect_id.take());
                    }
                    record.owner = Some(lease.relay_id.clone());
                }
                record.version += 1;
                lanes.push(lane(number, record));
            }
            for id in suspects {
                if let Some(row) = table.rows.get_mut(&id) {
                    row.crash_count = row.crash_count.max(SUSPECT_CRASHES) + 1;
                    row.version += 1;
                    row.next_retry_at.get_or_insert(now);
                }
            }
            state.checker.note(now, || format!("owns {} lanes", lanes.len()));
            Ok(lanes)
        })
        .await
    }

    async fn lane_owners(&self, outbox: &Outbox) -> Result<Vec<LaneOwner>> {
        self.call(|state, _| {
            let lanes = state.database.table(outbox.name())?.lanes.iter().zip(0..);
            let owner = |(record, lane): (&LaneRecord, u8)| LaneOwner {
                lane,
                relay_id: record.owner.clone(),
                crash_count: record.crash_count,
            };
            Ok(lanes.map(owner).collect())
        })
        .await
    }

    async fn release_lanes(&self, outbox: &Outbox, lease: &Lease, lanes: &[Lane]) -> Result<()> {
        self.call(|state, _| {
            let table = state.database.table(outbox.name())?;
            for lane in lanes {
                let record = &mut table.lanes[usize::from(lane.lane)];
                let ours = record.owner.as_ref() == Some(&lease.relay_id);
                if ours && record.version == lane.version {
                    record.owner = None;
                    record.version += 1;
                }
            }
            Ok(())
        })
        .await
    }

    async fn read_lanes(
        &self,
        outbox: &Outbox,
        lanes: LaneSet,
        known: &[i64],
        hidden: &[Key],
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<LaneRead> {
        let session = self.observe(outbox, cursor).await?;
        let closed_until = cursor.horizon.closed_until();
        let low = cursor.low;
        let hides = !hidden.is_empty();
        let hidden: Vec<usize> = hidden.iter().map(number_of_key).collect();
        let read = self
            .call(|state, now| {
                state.database.check_session(session)?;
                let table = state.database.table(outbox.name())?;
                let rows = table.rows.range(low + 1..).filter(|(id, row)| {
                    !row.marked
                        && lanes.contains(lane_of(row.key))
                        && !known.contains(id)
                        && !hidden.contains(&row.key)
                });
                Ok(read_up_to(rows, limit, now))
            })
            .await?;
        cursor.saw(read.rows.last().map(|row| row.event.id), hides);
        let scanned_to = read.rows.last().filter(|_| read.full).map(|row| row.event.id);
        cursor.advance(closed_until, scanned_to);
        Ok(read)
    }

    async fn read_ids(&self, outbox: &Outbox, ids: &[i64]) -> Result<Vec<LaneRow>> {
        self.call(|state, now| {
            let table = state.database.table(outbox.name())?;
            let rows = table.rows.iter().filter(|(id, row)| ids.contains(id) && !row.marked);
            Ok(rows.map(|(id, row)| lane_row(*id, row, now)).collect())
        })
        .await
    }

    async fn read_keys(
        &self,
        outbox: &Outbox,
        keys: &[Key],
        from: i64,
        to: i64,
        limit: ClaimLimit,
    ) -> Result<LaneRead> {
        let keys: Vec<usize> = keys.iter().map(number_of_key).collect();
        self.call(|state, now| {
            let table = state.database.table(outbox.name())?;
            let rows = table.rows.range(from..=to.max(from));
            let rows = rows.filter(|(_, row)| !row.marked && keys.contains(&row.key));
            Ok(read_up_to(rows, limit, now))
        })
        .await
    }

    async fn note_flight(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes: LaneSet,
        flight_to: i64,
    ) -> Result<()> {
        self.change_lanes(outbox, lease, lanes, |record, _| {
            record.flight_to = Some(record.flight_to.map_or(flight_to, |to| to.max(flight_to)));
        })
        .await
    }

    async fn note_suspect(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lane: u8,
        id: Option<i64>,
    ) -> Result<()> {
        // One suspect at a time, over all lanes.
        self.change_lanes(outbox, lease, LaneSet::ALL, |record, number| {
            record.suspect_id = id.filter(|_| number == lane);
        })
        .await
    }

    async fn clear_crashes(&self, outbox: &Outbox, lease: &Lease, lanes: LaneSet) -> Result<()> {
        self.change_lanes(outbox, lease, lanes, |record, _| {
            (record.crash_count, record.flight_to, record.suspect_id) = (0, None, None);
        })
        .await
    }

    async fn park_keys(&self, outbox: &Outbox, lease: &Lease, keys: &[Key]) -> Result<()> {
        self.call(|state, _| {
            state.database.check_lease(lease)?;
            state.database.table(outbox.name())?.parked.extend(keys.iter().cloned());
            Ok(())
        })
        .await
    }

    async fn parked_keys(&self, outbox: &Outbox) -> Result<Vec<Key>> {
        self.call(|state, _| {
            Ok(state.database.table(outbox.name())?.parked.iter().cloned().collect())
        })
        .await
    }

    async fn release_key(&self, _: &Outbox, _: &Key, _: &str) -> Result<()> {
        Err(StoreError::Refused("not simulated".to_owned()))
    }

    async fn blocked_keys(&self, _: &Outbox, _: u32, _: i64) -> Result<Vec<BlockedKey>> {
        Ok(Vec::new())
    }
}

impl SimulatedStore {
    async fn change_lanes(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes: LaneSet,
        change: impl Fn(&mut LaneRecord, u8),
    ) -> Result<()> {
        self.call(|state, _| {
            let table = state.database.table(outbox.name())?;
            let records = table.lanes.iter_mut().zip(0_u8..);
            records
                .filter(|(record, number)| {
                    lanes.contains(*number) && record.owner.as_ref() == Some(&lease.relay_id)
                })
                .for_each(|(record, number)| change(record, number));
            Ok(())
        })
        .await
    }
}

fn read_up_to<'a>(
    rows: impl Iterator<Item = (&'a i64, &'a Row)>,
    limit: ClaimLimit,
    now: Time,
) -> LaneRead {
    let rows: Vec<LaneRow> =
        rows.take(limit.rows as usize).map(|(id, row)| lane_row(*id, row, now)).collect();
    LaneRead { full: !rows.is_empty() && rows.len() >= limit.rows as usize, rows }
}
