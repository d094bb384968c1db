//! The search of a claim: finds rows, locks them, and takes them for the relay.

use postrider::Outbox;
use sqlx::mysql::MySqlConnection;

use super::settle::ids_json;
use crate::Event;
use crate::columns::{self, sql};
use crate::contract::{Lease, Result, Share};

/// The rows that the search of a claim found.
pub(super) struct Candidates {
    /// Number of rows found; if it equals the limit, there may be more.
    pub(super) seen: u32,
    /// Ids and bytes of the rows that are locked now.
    pub(super) locked: Vec<(i64, i32)>,
}

impl Candidates {
    fn all(locked: Vec<(i64, i32)>) -> Self {
        Self { seen: u32::try_from(locked.len()).unwrap_or(u32::MAX), locked }
    }

    /// Locks the rows that a plain read found.
    async fn lock(
        connection: &mut MySqlConnection,
        outbox: &Outbox,
        found: Vec<i64>,
    ) -> Result<Self> {
        let locked = sqlx::query_as(outbox.sql(sql!("sql/claim.sql", "claim_lock")))
            .bind(ids_json(&found))
            .fetch_all(connection)
            .await?;
        Ok(Self { seen: u32::try_from(found.len()).unwrap_or(u32::MAX), locked })
    }
}

pub(super) async fn lock_waiting(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    share: Share,
    rows: u32,
) -> Result<Candidates> {
    if share == Share::WHOLE {
        let locked = sqlx::query_as(outbox.sql(sql!("sql/claim.sql", "claim_waiting")))
            .bind(rows)
            .fetch_all(connection)
            .await?;
        return Ok(Candidates::all(locked));
    }
    let found = sqlx::query_scalar(outbox.sql(sql!("sql/claim.sql", "claim_find_waiting")))
        .bind(share.of)
        .bind(share.index)
        .bind(rows)
        .fetch_all(&mut *connection)
        .await?;
    Candidates::lock(connection, outbox, found).await
}

pub(super) async fn lock_fresh(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    share: Share,
    low: i64,
    rows: u32,
) -> Result<Candidates> {
    if share == Share::WHOLE {
        let locked = sqlx::query_as(outbox.sql(sql!("sql/claim.sql", "claim_fresh")))
            .bind(low)
            .bind(rows)
            .fetch_all(connection)
            .await?;
        return Ok(Candidates::all(locked));
    }
    let found = sqlx::query_scalar(outbox.sql(sql!("sql/claim.sql", "claim_find_fresh")))
        .bind(low)
        .bind(share.of)
        .bind(share.index)
        .bind(rows)
        .fetch_all(&mut *connection)
        .await?;
    Candidates::lock(connection, outbox, found).await
}

/// Takes locked rows for the relay and reads them, by ascending id.
pub(super) async fn take(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    lease: &Lease,
    ids: &[i64],
) -> Result<Vec<Event>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let ids = ids_json(ids);
    sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_take")))
        .bind(&ids)
        .bind(&lease.relay_id)
        .execute(&mut *connection)
        .await?;
    let mut events = sqlx::query(outbox.sql(sql!("sql/claim.sql", "claim_read")))
        .bind(&ids)
        .try_map(|row| columns::event(&row))
        .fetch_all(&mut *connection)
        .await?;
    events.sort_unstable_by_key(|event| event.id);
    Ok(events)
}

/// Returns the ids, ascending, that fit into the limit together; the first one in any case.
pub(super) fn within(bytes_max: u64, mut candidates: Vec<(i64, i32)>) -> Vec<i64> {
    candidates.sort_unstable();
    let mut total = 0_u64;
    let fitting = candidates.iter().take_while(|(_, bytes)| {
        total = total.saturating_add(u64::try_from(*bytes).unwrap_or(0));
        total <= bytes_max
    });
    let fitting = fitting.count().max(1);
    candidates.iter().take(fitting).map(|(id, _)| *id).collect()
}
