//! Claim mode `lanes`. Rows have no lane in this store, so one relay owns all lanes.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tokio::time::Instant;

use super::claim::decode;
use super::claim::pairs;
use super::value::{number, required, text, time_or_none};
use super::{On, SqliteStore, json};
use crate::columns::{AFTER_EVENT, sql};
use crate::contract::{
    BlockedKey, ClaimLimit, ClaimMode, Cursor, FoundLane, Key, LANES, Lane, LaneOwner, LaneRead,
    LaneRow, LaneSet, Lanes, Lease, Mode, Result, choose_lanes, mode_of, up_to_limit,
};
use crate::operator::audit;

#[async_trait]
impl Lanes for SqliteStore {
    async fn modes(&self) -> Result<Vec<(String, Mode)>> {
        let rows: Vec<(String, String, i64)> = sqlx::query_as(sql!("sql/lanes.sql", "modes"))
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        rows.into_iter().map(|(name, claim, epoch)| Ok((name, mode_of(&claim, epoch)?))).collect()
    }

    async fn set_mode(&self, outbox: &Outbox, claim: ClaimMode, operator: &str) -> Result<Mode> {
        let mut tx = self.begin().await?;
        let (claim, epoch): (String, i64) = sqlx::query_as(sql!("sql/lanes.sql", "set_mode"))
            .bind(outbox.name())
            .bind(claim.as_str())
            .fetch_one(&mut *tx)
            .await
            .on(self)?;
        let detail = format!("mode epoch {epoch}");
        audit(&mut *tx, operator, "set_claim", outbox.name(), &claim, &detail).await?;
        tx.commit().await.on(self)?;
        mode_of(&claim, epoch)
    }

    /// Takes all lanes or none: rows have no lane, so two owners would both deliver them.
    async fn take_lanes(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes_max: usize,
    ) -> Result<Vec<Lane>> {
        let mut tx = self.begin_held(lease).await?;
        let rows = sqlx::query(sql!("sql/lanes.sql", "lanes_of"))
            .bind(outbox.name())
            .fetch_all(&mut *tx)
            .await
            .on(self)?;
        let found = rows.iter().map(found_lane).collect::<Result<Vec<_>, sqlx::Error>>()?;
        let others = |found: &FoundLane| found.owner.as_ref() != Some(&lease.relay_id);
        let taken_by_another = found.iter().any(|found| found.owner_lives && others(found));
        let lanes_max = match taken_by_another || lanes_max == 0 {
            true => 0,
            false => usize::from(LANES),
        };
        let taken = choose_lanes(&found, &lease.relay_id, lanes_max);
        let suspects: Vec<i64> = taken.iter().filter_map(|take| take.suspect_id).collect();
        if !suspects.is_empty() {
            sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_charge")))
                .bind(json(&suspects)?)
                .execute(&mut *tx)
                .await
                .on(self)?;
        }
        let takes: Vec<_> =
            taken.iter().map(|take| [take.lane.lane, u8::from(take.died)]).collect();
        sqlx::query(sql!("sql/lanes.sql", "lanes_take"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(json(&takes)?)
            .execute(&mut *tx)
            .await
            .on(self)?;
        tx.commit().await.on(self)?;
        Ok(taken.into_iter().map(|take| take.lane).collect())
    }

    async fn lane_owners(&self, outbox: &Outbox) -> Result<Vec<LaneOwner>> {
        let rows: Vec<(u8, Option<String>, i32)> =
            sqlx::query_as(sql!("sql/lanes.sql", "lane_owners"))
                .bind(outbox.name())
                .fetch_all(&self.readers)
                .await
                .on(self)?;
        let owner =
            |(lane, relay_id, crash_count): (u8, _, _)| LaneOwner { lane, relay_id, crash_count };
        Ok(rows.into_iter().map(owner).collect())
    }

    async fn release_lanes(&self, outbox: &Outbox, lease: &Lease, lanes: &[Lane]) -> Result<()> {
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.version)).collect();
        sqlx::query(sql!("sql/lanes.sql", "lanes_release"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(json(&lanes)?)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn read_lanes(
        &self,
        outbox: &Outbox,
        _: LaneSet,
        known: &[i64],
        hidden: &[Key],
        limit: ClaimLimit,
        cursor: &mut Cursor,
    ) -> Result<LaneRead> {
        let (last_id, found) = loop {
            let (low, looked_at) = (cursor.low, Instant::now());
            let (last_id, found): (i64, String) =
                sqlx::query_as(outbox.sql(sql!("sql/lanes.sql", "lanes_find")))
                    .bind(low)
                    .bind(limit.rows)
                    .bind(keys_json(hidden)?)
                    .bind(json(known)?)
                    .fetch_one(&self.readers)
                    .await
                    .on(self)?;
            cursor.notice_last_id(last_id)?;
            cursor.observed_at = Some(looked_at);
            // Otherwise ids went back, and this search started after some of them.
            if cursor.low == low {
                break (last_id, found);
            }
        };
        let (ids, full) = up_to_limit(&pairs(&found)?, limit);
        let rows = self.read_ids(outbox, &ids).await?;
        cursor.saw(rows.last().map(|row| row.event.id), !hidden.is_empty());
        cursor.horizon.observe(last_id, BTreeSet::new());
        // Not the last row that was returned, because that row may have gone between the two
        // statements.
        cursor.advance(cursor.horizon.closed_until(), ids.last().copied().filter(|_| full));
        Ok(LaneRead { rows, full })
    }

    async fn read_ids(&self, outbox: &Outbox, ids: &[i64]) -> Result<Vec<LaneRow>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_read")))
            .bind(json(ids)?)
            .try_map(|row| lane_row(&row))
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        rows.sort_unstable_by_key(|row| row.event.id);
        Ok(rows)
    }

    async fn read_keys(
        &self,
        outbox: &Outbox,
        keys: &[Key],
        from: i64,
        to: i64,
        limit: ClaimLimit,
    ) -> Result<LaneRead> {
        let found: String =
            sqlx::query_scalar(outbox.sql(sql!("sql/lanes.sql", "lanes_find_keys")))
                .bind(from)
                .bind(to)
                .bind(limit.rows)
                .bind(keys_json(keys)?)
                .fetch_one(&self.readers)
                .await
                .on(self)?;
        let (ids, full) = up_to_limit(&pairs(&found)?, limit);
        Ok(LaneRead { rows: self.read_ids(outbox, &ids).await?, full })
    }

    async fn note_flight(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes: LaneSet,
        flight_to: i64,
    ) -> Result<()> {
        sqlx::query(sql!("sql/lanes.sql", "lanes_note_flight"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lanes.bits())
            .bind(flight_to)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn note_suspect(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lane: u8,
        id: Option<i64>,
    ) -> Result<()> {
        sqlx::query(sql!("sql/lanes.sql", "lanes_note_suspect"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lane)
            .bind(id)
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn clear_crashes(&self, outbox: &Outbox, lease: &Lease, lanes: LaneSet) -> Result<()> {
        sqlx::query(sql!("sql/lanes.sql", "lanes_clear"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lanes.bits())
            .execute(&self.writer)
            .await
            .on(self)?;
        Ok(())
    }

    async fn park_keys(&self, outbox: &Outbox, lease: &Lease, keys: &[Key]) -> Result<()> {
        let mut tx = self.begin_held(lease).await?;
        sqlx::query(sql!("sql/lanes.sql", "park_keys"))
            .bind(outbox.name())
            .bind(keys_json(keys)?)
            .execute(&mut *tx)
            .await
            .on(self)?;
        tx.commit().await.on(self)
    }

    async fn parked_keys(&self, outbox: &Outbox) -> Result<Vec<Key>> {
        let rows: Vec<(String, String)> = sqlx::query_as(sql!("sql/lanes.sql", "parked_keys"))
            .bind(outbox.name())
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        Ok(rows
            .into_iter()
            .map(|(aggregate_type, aggregate_id)| Key { aggregate_type, aggregate_id })
            .collect())
    }

    async fn release_key(&self, outbox: &Outbox, key: &Key, operator: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let released = sqlx::query(sql!("sql/lanes.sql", "release_key"))
            .bind(outbox.name())
            .bind(&key.aggregate_type)
            .bind(&key.aggregate_id)
            .execute(&mut *tx)
            .await
            .on(self)?;
        if released.rows_affected() == 0 {
            return Err(key.not_parked());
        }
        audit(
            &mut *tx,
            operator,
            "release_key",
            outbox.name(),
            &key.aggregate_id,
            &key.aggregate_type,
        )
        .await?;
        tx.commit().await.on(self)
    }

    async fn blocked_keys(
        &self,
        outbox: &Outbox,
        limit: u32,
        rows_max: i64,
    ) -> Result<Vec<BlockedKey>> {
        let rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "blocked_keys")))
            .bind(outbox.name())
            .bind(limit)
            .bind(rows_max)
            .fetch_all(&self.readers)
            .await
            .on(self)?;
        let blocked = |row: &SqliteRow| {
            Ok::<_, sqlx::Error>(BlockedKey {
                key: Key { aggregate_type: required(row, 0)?, aggregate_id: required(row, 1)? },
                head_id: row.try_get(2)?,
                last_error: text(row, 3)?,
                retry_count: number(row, 4)?,
                next_retry_at: time_or_none(row, 5)?,
                waiting: row.try_get(6)?,
                more: row.try_get(7)?,
                parked: row.try_get(8)?,
            })
        };
        Ok(rows.iter().map(blocked).collect::<Result<_, _>>()?)
    }
}

fn keys_json(keys: &[Key]) -> Result<String> {
    let halves: Vec<_> = keys.iter().map(|key| [&key.aggregate_type, &key.aggregate_id]).collect();
    json(&halves)
}

fn found_lane(row: &SqliteRow) -> Result<FoundLane, sqlx::Error> {
    Ok(FoundLane {
        lane: Lane {
            lane: row.try_get(0)?,
            version: number(row, 2)?,
            crash_count: number(row, 3)?,
            flight_to: row.try_get(4)?,
        },
        owner: row.try_get(1)?,
        suspect_id: row.try_get(5)?,
        owner_lives: row.try_get(6)?,
    })
}

/// Decodes the columns of `decode`, then time until due in ms, busy.
fn lane_row(row: &SqliteRow) -> Result<LaneRow, sqlx::Error> {
    let due_in_ms: Option<i64> = row.try_get(AFTER_EVENT)?;
    Ok(LaneRow {
        event: decode(row)?,
        lane: 0,
        due_in: Duration::from_millis(due_in_ms.unwrap_or(0).try_into().unwrap_or(0)),
        busy: row.try_get(AFTER_EVENT + 1)?,
    })
}
