//! Claim mode `lanes`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use serde_json::json;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::MysqlStore;
use super::settle::ids_json;
use crate::StoreError;
use crate::columns::{self, AFTER_EVENT, sql};
use crate::contract::{
    BlockedKey, ClaimLimit, ClaimMode, Cursor, FoundLane, Key, Lane, LaneOwner, LaneRead, LaneRow,
    LaneSet, Lanes, Lease, Mode, Result, choose_lanes, mode_of, up_to_limit,
};
use crate::operator::audit;

#[async_trait]
impl Lanes for MysqlStore {
    async fn modes(&self) -> Result<Vec<(String, Mode)>> {
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as(sql!("sql/lanes.sql", "modes")).fetch_all(&self.pool).await?;
        rows.into_iter().map(|(name, claim, epoch)| Ok((name, mode_of(&claim, epoch)?))).collect()
    }

    async fn set_mode(&self, outbox: &Outbox, claim: ClaimMode, operator: &str) -> Result<Mode> {
        let mut tx = self.begin().await?;
        sqlx::query(sql!("sql/lanes.sql", "set_mode"))
            .bind(claim.as_str())
            .bind(claim.as_str())
            .bind(outbox.name())
            .execute(&mut *tx)
            .await?;
        let (claim, epoch): (String, i64) = sqlx::query_as(sql!("sql/lanes.sql", "mode"))
            .bind(outbox.name())
            .fetch_one(&mut *tx)
            .await?;
        let detail = format!("mode epoch {epoch}");
        audit(&mut *tx, operator, "set_claim", outbox.name(), &claim, &detail).await?;
        tx.commit().await?;
        mode_of(&claim, epoch)
    }

    async fn take_lanes(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        lanes_max: usize,
    ) -> Result<Vec<Lane>> {
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
        let rows = sqlx::query(sql!("sql/lanes.sql", "lanes_of"))
            .bind(outbox.name())
            .fetch_all(&mut *tx)
            .await?;
        let living: Vec<String> =
            sqlx::query_scalar(sql!("sql/lease.sql", "living")).fetch_all(&mut *tx).await?;
        let living: HashSet<String> = living.into_iter().collect();
        let found = rows
            .iter()
            .map(|row| found_lane(row, &living))
            .collect::<Result<Vec<_>, sqlx::Error>>()?;
        let taken = choose_lanes(&found, &lease.relay_id, lanes_max);
        let suspects: Vec<i64> = taken.iter().filter_map(|take| take.suspect_id).collect();
        if !suspects.is_empty() {
            sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_charge")))
                .bind(ids_json(&suspects))
                .execute(&mut *tx)
                .await?;
        }
        let takes: Vec<_> =
            taken.iter().map(|take| [take.lane.lane, u8::from(take.died)]).collect();
        sqlx::query(sql!("sql/lanes.sql", "lanes_take"))
            .bind(json!(takes).to_string())
            .bind(&lease.relay_id)
            .bind(outbox.name())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(taken.into_iter().map(|take| take.lane).collect())
    }

    async fn lane_owners(&self, outbox: &Outbox) -> Result<Vec<LaneOwner>> {
        let rows: Vec<(i8, Option<String>, i32)> =
            sqlx::query_as(sql!("sql/lanes.sql", "lane_owners"))
                .bind(outbox.name())
                .fetch_all(&self.pool)
                .await?;
        let owner = |(lane, relay_id, crash_count): (i8, _, _)| LaneOwner {
            lane: u8::try_from(lane).unwrap_or(u8::MAX),
            relay_id,
            crash_count,
        };
        Ok(rows.into_iter().map(owner).collect())
    }

    async fn release_lanes(&self, outbox: &Outbox, lease: &Lease, lanes: &[Lane]) -> Result<()> {
        let lanes: Vec<_> = lanes.iter().map(|lane| (lane.lane, lane.version)).collect();
        sqlx::query(sql!("sql/lanes.sql", "lanes_release"))
            .bind(json!(lanes).to_string())
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .execute(&self.pool)
            .await?;
        Ok(())
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
        // Before the read: see `Cursor::advance`.
        self.observe_horizon(outbox, cursor).await?;
        let closed_until = cursor.horizon.closed_until();
        let plain = known.is_empty() && hidden.is_empty();
        let statement = match plain {
            true => sql!("sql/lanes.sql", "lanes_find"),
            false => sql!("sql/lanes.sql", "lanes_find_known"),
        };
        let mut query = sqlx::query_as(outbox.sql(statement)).bind(cursor.low).bind(lanes.bits());
        if !plain {
            query = query.bind(keys_json(hidden)).bind(ids_json(known));
        }
        let found = query.bind(limit.rows).fetch_all(&self.pool).await?;
        let (ids, full) = up_to_limit(&weighed(found), limit);
        let rows = self.read_ids(outbox, &ids).await?;
        cursor.saw(rows.last().map(|row| row.event.id), !hidden.is_empty());
        // Not the last row that was returned, because that row may have gone between the two
        // statements.
        cursor.advance(closed_until, ids.last().copied().filter(|_| full));
        Ok(LaneRead { rows, full })
    }

    async fn read_ids(&self, outbox: &Outbox, ids: &[i64]) -> Result<Vec<LaneRow>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_read")))
            .bind(ids_json(ids))
            .try_map(|row| lane_row(&row))
            .fetch_all(&self.pool)
            .await?;
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
        let found = sqlx::query_as(outbox.sql(sql!("sql/lanes.sql", "lanes_find_keys")))
            .bind(from)
            .bind(to)
            .bind(keys_json(keys))
            .bind(limit.rows)
            .fetch_all(&self.pool)
            .await?;
        let (ids, full) = up_to_limit(&weighed(found), limit);
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
            .bind(flight_to)
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lanes.bits())
            .execute(&self.pool)
            .await?;
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
            .bind(lane)
            .bind(id)
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lane)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn clear_crashes(&self, outbox: &Outbox, lease: &Lease, lanes: LaneSet) -> Result<()> {
        sqlx::query(sql!("sql/lanes.sql", "lanes_clear"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lanes.bits())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn park_keys(&self, outbox: &Outbox, lease: &Lease, keys: &[Key]) -> Result<()> {
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
        sqlx::query(sql!("sql/lanes.sql", "park_keys"))
            .bind(outbox.name())
            .bind(keys_json(keys))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn parked_keys(&self, outbox: &Outbox) -> Result<Vec<Key>> {
        let rows: Vec<(String, String)> = sqlx::query_as(sql!("sql/lanes.sql", "parked_keys"))
            .bind(outbox.name())
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(key).collect())
    }

    async fn release_key(&self, outbox: &Outbox, key: &Key, operator: &str) -> Result<()> {
        let mut tx = self.begin().await?;
        let released = sqlx::query(sql!("sql/lanes.sql", "release_key"))
            .bind(outbox.name())
            .bind(&key.aggregate_type)
            .bind(&key.aggregate_id)
            .execute(&mut *tx)
            .await?;
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
        tx.commit().await?;
        Ok(())
    }

    async fn blocked_keys(
        &self,
        outbox: &Outbox,
        limit: u32,
        rows_max: i64,
    ) -> Result<Vec<BlockedKey>> {
        let mut blocked = self.heads(outbox, limit, rows_max).await?;
        let parked: Vec<(String, String)> =
            sqlx::query_as(sql!("sql/lanes.sql", "parked_keys_some"))
                .bind(outbox.name())
                .bind(limit)
                .fetch_all(&self.pool)
                .await?;
        for key in parked.into_iter().map(key) {
            blocked.entry(key.clone()).or_insert_with(|| BlockedKey::without_head(key)).parked =
                true;
        }
        let mut blocked: Vec<_> = blocked.into_values().collect();
        let first_ids = self.count_waiting(outbox, &mut blocked, rows_max).await?;
        blocked.sort_by_key(|blocked| {
            let first = blocked.head_id.or_else(|| first_ids.get(&blocked.key).copied());
            (first.is_none(), first, blocked.key.clone())
        });
        blocked.truncate(limit as usize);
        Ok(blocked)
    }
}

impl MysqlStore {
    /// Returns the head of each blocked key: the event that was tried and waits.
    async fn heads(
        &self,
        outbox: &Outbox,
        limit: u32,
        rows_max: i64,
    ) -> Result<BTreeMap<Key, BlockedKey>> {
        type Head = (i64, String, String, Option<String>, i32, Option<DateTime<Utc>>);
        let rows: Vec<Head> = sqlx::query_as(outbox.sql(sql!("sql/lanes.sql", "blocked_heads")))
            .bind(rows_max)
            .bind(limit)
            .fetch_all(&self.pool)
            .await?;
        let mut heads: BTreeMap<Key, BlockedKey> = BTreeMap::new();
        for (id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at) in rows {
            let key = key((aggregate_type, aggregate_id));
            if heads.get(&key).and_then(|known| known.head_id).is_some_and(|known| known < id) {
                continue;
            }
            let head = BlockedKey {
                head_id: Some(id),
                last_error,
                retry_count,
                next_retry_at,
                ..BlockedKey::without_head(key.clone())
            };
            heads.insert(key, head);
        }
        Ok(heads)
    }

    /// Counts the events that wait behind each key in one pass over the table; returns the oldest
    /// of them per key.
    async fn count_waiting(
        &self,
        outbox: &Outbox,
        blocked: &mut [BlockedKey],
        rows_max: i64,
    ) -> Result<HashMap<Key, i64>> {
        let Some(from) = blocked.iter().map(|blocked| blocked.head_id.unwrap_or(0)).min() else {
            return Ok(HashMap::new());
        };
        let (scanned, to): (i64, Option<i64>) =
            sqlx::query_as(outbox.sql(sql!("sql/lanes.sql", "blocked_range")))
                .bind(from)
                .bind(rows_max)
                .fetch_one(&self.pool)
                .await?;
        let keys = json!(
            blocked
                .iter()
                .map(|b| (&b.key.aggregate_type, &b.key.aggregate_id, b.head_id.unwrap_or(0)))
                .collect::<Vec<_>>()
        )
        .to_string();
        let counts: Vec<(i64, i64, i64)> =
            sqlx::query_as(outbox.sql(sql!("sql/lanes.sql", "blocked_count")))
                .bind(&keys)
                .bind(from)
                .bind(to.unwrap_or(from))
                .bind(&keys)
                .fetch_all(&self.pool)
                .await?;
        blocked.iter_mut().for_each(|blocked| blocked.more = scanned >= rows_max);
        let mut first_ids = HashMap::new();
        for (position, waiting, first_id) in counts {
            // Positions count from 1.
            let position = usize::try_from(position - 1).unwrap_or(usize::MAX);
            if let Some(blocked) = blocked.get_mut(position) {
                blocked.waiting = waiting;
                first_ids.insert(blocked.key.clone(), first_id);
            }
        }
        Ok(first_ids)
    }
}

fn key((aggregate_type, aggregate_id): (String, String)) -> Key {
    Key { aggregate_type, aggregate_id }
}

fn keys_json(keys: &[Key]) -> String {
    let rows: Vec<_> = keys.iter().map(|key| [&key.aggregate_type, &key.aggregate_id]).collect();
    json!(rows).to_string()
}

/// Converts ids and bytes from the type in which the searches return them.
fn weighed(found: Vec<(i64, i32)>) -> Vec<(i64, u64)> {
    found.into_iter().map(|(id, bytes)| (id, u64::try_from(bytes).unwrap_or(0))).collect()
}

fn found_lane(row: &MySqlRow, living: &HashSet<String>) -> Result<FoundLane, sqlx::Error> {
    let lane: i8 = row.try_get(0)?;
    let owner: Option<String> = row.try_get(1)?;
    Ok(FoundLane {
        lane: Lane {
            lane: u8::try_from(lane).unwrap_or(u8::MAX),
            version: row.try_get(2)?,
            crash_count: row.try_get(3)?,
            flight_to: row.try_get(4)?,
        },
        owner_lives: owner.as_ref().is_some_and(|owner| living.contains(owner)),
        owner,
        suspect_id: row.try_get(5)?,
    })
}

/// Decodes the columns of `decode`, then lane, time until due in ms, busy.
fn lane_row(row: &MySqlRow) -> Result<LaneRow, sqlx::Error> {
    let (lane, due_in_ms): (i8, Option<i64>) =
        (row.try_get(AFTER_EVENT)?, row.try_get(AFTER_EVENT + 1)?);
    Ok(LaneRow {
        event: columns::event(row)?,
        lane: u8::try_from(lane).unwrap_or_default(),
        due_in: Duration::from_millis(due_in_ms.unwrap_or(0).try_into().unwrap_or(0)),
        busy: row.try_get(AFTER_EVENT + 2)?,
    })
}
