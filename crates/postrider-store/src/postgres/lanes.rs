//! Claim mode `lanes`.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt;
use postrider::Outbox;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Postgres, Row};

use super::PostgresStore;
use super::sessions::Session;
use super::settle::settled;
use super::store::{decode, observe_horizon};
use super::time::time_or_none;
use crate::StoreError;
use crate::columns::{AFTER_EVENT, sql};
use crate::contract::{
    BlockedKey, ClaimLimit, ClaimMode, Cursor, FoundLane, Key, Lane, LaneOwner, LaneRead, LaneRow,
    LaneSet, Lanes, Lease, Mode, Result, choose_lanes, mode_of,
};
use crate::operator::audit;

/// Maximum number of rows and of keys that a read leaves out one by one; more are left out by a
/// hash.
const KNOWN_FEW: usize = 16;
const HIDDEN_FEW: usize = 4;

type PgQuery<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

#[async_trait]
impl Lanes for PostgresStore {
    async fn modes(&self) -> Result<Vec<(String, Mode)>> {
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as(sql!("sql/lanes.sql", "modes")).fetch_all(&self.pool).await?;
        rows.into_iter().map(|(name, claim, epoch)| Ok((name, mode_of(&claim, epoch)?))).collect()
    }

    async fn set_mode(&self, outbox: &Outbox, claim: ClaimMode, operator: &str) -> Result<Mode> {
        let mut tx = self.begin().await?;
        let (claim, epoch): (String, i64) = sqlx::query_as(sql!("sql/lanes.sql", "set_mode"))
            .bind(outbox.name())
            .bind(claim.as_str())
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
        let mut tx = self.begin().await?;
        let held: Option<i32> = sqlx::query_scalar(sql!("sql/lease.sql", "lease_hold"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .fetch_optional(&mut *tx)
            .await?;
        if held.is_none() {
            return Err(StoreError::LeaseLost);
        }
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
                .bind(&suspects)
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query(sql!("sql/lanes.sql", "lanes_take"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(taken.iter().map(|take| i16::from(take.lane.lane)).collect::<Vec<_>>())
            .bind(taken.iter().map(|take| take.died).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(taken.into_iter().map(|take| take.lane).collect())
    }

    async fn lane_owners(&self, outbox: &Outbox) -> Result<Vec<LaneOwner>> {
        let rows: Vec<(i16, Option<String>, i32)> =
            sqlx::query_as(sql!("sql/lanes.sql", "lane_owners"))
                .bind(outbox.name())
                .fetch_all(&self.pool)
                .await?;
        let owner = |(lane, relay_id, crash_count): (i16, _, _)| LaneOwner {
            lane: u8::try_from(lane).unwrap_or(u8::MAX),
            relay_id,
            crash_count,
        };
        Ok(rows.into_iter().map(owner).collect())
    }

    async fn release_lanes(&self, outbox: &Outbox, lease: &Lease, lanes: &[Lane]) -> Result<()> {
        sqlx::query(sql!("sql/lanes.sql", "lanes_release"))
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(lanes.iter().map(|lane| i16::from(lane.lane)).collect::<Vec<_>>())
            .bind(lanes.iter().map(|lane| lane.version).collect::<Vec<_>>())
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
        let mut session = self.sessions.take().await?;
        observe_horizon(&mut session, outbox, cursor).await?;
        let closed_until = cursor.horizon.closed_until();
        let asked = cursor.rows_within(limit);
        let read =
            |sql| sqlx::query(sql).bind(cursor.low).bind(lanes.bits()).bind(i64::from(asked));
        let query = if known.len() <= KNOWN_FEW && hidden.len() <= HIDDEN_FEW {
            let query = read(read_sql(outbox, hidden.len())).bind(known);
            hidden
                .iter()
                .fold(query, |query, key| query.bind(&key.aggregate_id).bind(&key.aggregate_type))
        } else {
            let (types, ids) = halves(hidden);
            let sql = outbox.sql(sql!("sql/lanes.sql", "lanes_read_known"));
            read(sql).bind(known).bind(types).bind(ids)
        };
        let read = read_until_heavy(session, query, ClaimLimit { rows: asked, ..limit }).await?;
        cursor.weigh(&read.rows);
        cursor.saw(read.rows.last().map(|row| row.event.id), !hidden.is_empty());
        let scanned_to = read.rows.last().filter(|_| read.full).map(|row| row.event.id);
        cursor.advance(closed_until, scanned_to);
        Ok(read)
    }

    async fn read_ids(&self, outbox: &Outbox, ids: &[i64]) -> Result<Vec<LaneRow>> {
        let rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_read_ids")))
            .bind(ids)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.iter().map(lane_row).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn read_keys(
        &self,
        outbox: &Outbox,
        keys: &[Key],
        from: i64,
        to: i64,
        limit: ClaimLimit,
    ) -> Result<LaneRead> {
        let (types, ids) = halves(keys);
        let rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "lanes_read_keys")))
            .bind(from)
            .bind(to)
            .bind(i64::from(limit.rows))
            .bind(bytes(limit))
            .bind(types)
            .bind(ids)
            .fetch_all(&self.pool)
            .await?;
        lane_read(&rows, limit)
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
            .bind(outbox.name())
            .bind(&lease.relay_id)
            .bind(i16::from(lane))
            .bind(id)
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
        let (types, ids) = halves(keys);
        let row = sqlx::query(sql!("sql/lanes.sql", "park_keys"))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(outbox.name())
            .bind(types)
            .bind(ids)
            .fetch_one(&self.pool)
            .await?;
        settled(&row).map(|_| ())
    }

    async fn parked_keys(&self, outbox: &Outbox) -> Result<Vec<Key>> {
        let rows: Vec<(String, String)> = sqlx::query_as(sql!("sql/lanes.sql", "parked_keys"))
            .bind(outbox.name())
            .fetch_all(&self.pool)
            .await?;
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
        let mut tx = self.begin().await?;
        // Unlike the relay's other statements, this one joins sets.
        sqlx::raw_sql("SET LOCAL enable_hashjoin = on; SET LOCAL enable_sort = on")
            .execute(&mut *tx)
            .await?;
        let rows = sqlx::query(outbox.sql(sql!("sql/lanes.sql", "blocked_keys")))
            .bind(outbox.name())
            .bind(i64::from(limit))
            .bind(rows_max)
            .fetch_all(&mut *tx)
            .await?;
        let blocked = |row: &PgRow| {
            Ok::<_, sqlx::Error>(BlockedKey {
                key: Key { aggregate_type: row.try_get(0)?, aggregate_id: row.try_get(1)? },
                head_id: row.try_get(2)?,
                last_error: row.try_get(3)?,
                retry_count: row.try_get(4)?,
                next_retry_at: time_or_none(row, 5)?,
                waiting: row.try_get(6)?,
                more: row.try_get(7)?,
                parked: row.try_get(8)?,
            })
        };
        Ok(rows.iter().map(blocked).collect::<Result<_, _>>()?)
    }
}

/// Reads rows as they arrive, up to the one that reaches the byte limit. Adding up sizes in the
/// database first took three times as long as reading the rows.
async fn read_until_heavy(
    mut session: Session,
    query: PgQuery<'_>,
    limit: ClaimLimit,
) -> Result<LaneRead> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    {
        let mut found = query.fetch(&mut *session);
        while bytes < limit.bytes
            && let Some(row) = found.try_next().await?
        {
            let row = lane_row(&row)?;
            bytes += row.event.weight_bytes() as u64;
            rows.push(row);
        }
    }
    // Otherwise the session is closed: the remaining rows are on their way, and may be a thousand
    // times as many.
    if bytes < limit.bytes || rows.len() >= limit.rows as usize {
        session.give_back();
    }
    Ok(LaneRead::within(rows, limit))
}

fn bytes(limit: ClaimLimit) -> i64 {
    i64::try_from(limit.bytes).unwrap_or(i64::MAX)
}

fn halves(keys: &[Key]) -> (Vec<&str>, Vec<&str>) {
    keys.iter().map(|key| (key.aggregate_type.as_str(), key.aggregate_id.as_str())).unzip()
}

fn found_lane(row: &PgRow, living: &HashSet<String>) -> Result<FoundLane, sqlx::Error> {
    let lane: i16 = row.try_get(0)?;
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
fn lane_row(row: &PgRow) -> Result<LaneRow, sqlx::Error> {
    let (lane, due_in_ms): (i32, Option<i64>) =
        (row.try_get(AFTER_EVENT + 1)?, row.try_get(AFTER_EVENT + 2)?);
    Ok(LaneRow {
        event: decode(row)?,
        lane: u8::try_from(lane).unwrap_or_default(),
        due_in: Duration::from_millis(due_in_ms.unwrap_or(0).try_into().unwrap_or(0)),
        busy: row.try_get(AFTER_EVENT + 3)?,
    })
}

fn lane_read(rows: &[PgRow], limit: ClaimLimit) -> Result<LaneRead> {
    let mut rows = rows.iter().map(lane_row).collect::<Result<Vec<_>, sqlx::Error>>()?;
    rows.sort_unstable_by_key(|row| row.event.id);
    Ok(LaneRead::within(rows, limit))
}

/// Returns the statement that leaves out this number of keys, each by its own comparison.
fn read_sql(outbox: &Outbox, hidden: usize) -> AssertSqlSafe<String> {
    let AssertSqlSafe(sql) = outbox.sql(sql!("sql/lanes.sql", "lanes_read"));
    let key = |number: usize| {
        let (id, of_type) = (5 + 2 * number, 6 + 2 * number);
        format!("\n  AND NOT (aggregate_id = ${id} AND aggregate_type = ${of_type})")
    };
    AssertSqlSafe(sql.replace("{hidden}", &(0..hidden).map(key).collect::<String>()))
}
