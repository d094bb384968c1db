//! Settles delivered events, with the statement that runs for each of them.

use std::collections::BTreeMap;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use postrider::Outbox;
use sqlx::{Connection, PgConnection, PgExecutor, Row};
use uuid::Uuid;

use super::PostgresStore;
use super::tid::Tid;
use crate::StoreError;
use crate::columns::sql;
use crate::contract::{Delivery, Lease, OnSuccess, Result, Settled};

/// Minimum number of rows to delete by position. Fewer rows are looked up by their ids: the
/// transaction around them costs more than positions save.
const PLACED_ROWS_MIN: usize = 100;
/// Maximum number of ids from the first to the last, per row: each takes the 16 bytes of an event
/// id.
const IDS_PER_ROW_MAX: usize = 32;

/// Rows of one version whose positions are known.
#[derive(Debug, PartialEq, Eq)]
struct Placed<'a> {
    places: Vec<Tid>,
    first: i64,
    last: i64,
    /// One for each id from the first to the last; ids between the rows get one that no row has.
    identities: Vec<Uuid>,
    version: i64,
    /// Count and sum of ids by minute and event type.
    ledger: BTreeMap<(DateTime<Utc>, &'a str), (i64, i128)>,
}

impl<'a> Placed<'a> {
    /// Splits the rows into those with positions and the others. `None` if positions do not pay
    /// off.
    fn cut(delivered: &'a [Delivery]) -> Option<(Self, Vec<&'a Delivery>)> {
        let version = delivered.get(delivered.len() / 2)?.version;
        let (meant, others): (Vec<&Delivery>, Vec<_>) =
            delivered.iter().partition(|row| row.version == version && row.place.is_some());
        let ids = || meant.iter().map(|row| row.id);
        let (first, last) = (ids().min()?, ids().max()?);
        let span = usize::try_from(last.checked_sub(first)?).ok()?.checked_add(1)?;
        if meant.len() < PLACED_ROWS_MIN || span > meant.len() * IDS_PER_ROW_MAX {
            return None;
        }
        let places = meant.iter().filter_map(|row| row.place.map(Tid)).collect();
        let unused = Uuid::new_v4();
        let mut identities = vec![unused; span];
        for row in &meant {
            let slot = &mut identities[usize::try_from(row.id - first).ok()?];
            if *slot != unused {
                // The same row occurs twice, which this path does not handle.
                return None;
            }
            *slot = identity(&row.event_id);
        }
        let mut ledger: BTreeMap<_, (i64, i128)> = BTreeMap::new();
        for row in meant {
            let minute = row.created_at.duration_trunc(TimeDelta::minutes(1)).ok()?;
            let (count, sum) = ledger.entry((minute, row.event_type.as_str())).or_default();
            *count += 1;
            *sum += i128::from(row.id);
        }
        Some((Self { places, first, last, identities, version, ledger }, others))
    }
}

impl PostgresStore {
    /// Settles rows without answers of destinations.
    pub(super) async fn settle_plain(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let mut session = self.sessions.take().await?;
        let placed = match on_success {
            OnSuccess::Delete => Placed::cut(delivered),
            OnSuccess::Archive => None,
        };
        let mut settled = None;
        if let Some((placed, others)) = placed {
            settled = delete_placed(&mut session, outbox, lease, &placed, &others).await?;
        }
        let settled = match settled {
            Some(settled) => settled,
            None => {
                let rows: Vec<&Delivery> = delivered.iter().collect();
                settle_each(&mut *session, outbox, lease, &rows, on_success).await?
            }
        };
        session.give_back();
        Ok(settled)
    }

    /// Settles rows some of which have an answer of their destination.
    pub(super) async fn settle_answered(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let answered = || delivered.iter().filter(|d| d.response.is_some());
        let mut tx = self.begin().await?;
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_response")))
            .bind(&lease.relay_id)
            .bind(lease.epoch)
            .bind(answered().map(|d| d.id).collect::<Vec<_>>())
            .bind(answered().map(|d| d.version).collect::<Vec<_>>())
            .bind(answered().map(|d| d.response.as_deref()).collect::<Vec<_>>())
            .bind(answered().map(|d| identity(&d.event_id)).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
        // This checks whether the rows still belong to the relay; if not, the answers are rolled
        // back too.
        let rows: Vec<&Delivery> = delivered.iter().collect();
        let settled = settle_each(&mut *tx, outbox, lease, &rows, on_success).await?;
        tx.commit().await?;
        Ok(settled)
    }
}

/// Deletes rows by position. Returns `None`, and changes nothing, if some of the rows are not as
/// the relay knows them.
async fn delete_placed(
    session: &mut PgConnection,
    outbox: &Outbox,
    lease: &Lease,
    placed: &Placed<'_>,
    others: &[&Delivery],
) -> Result<Option<Settled>> {
    let (mut minutes, mut types) = (Vec::new(), Vec::new());
    let (mut counts, mut sums) = (Vec::new(), Vec::new());
    for ((minute, event_type), (count, sum)) in &placed.ledger {
        minutes.push(*minute);
        types.push(*event_type);
        counts.push(*count);
        sums.push(sum.to_string());
    }
    let mut tx = session.begin().await?;
    let deleted = sqlx::query(outbox.sql(sql!("sql/settle.sql", "settle_delivered_placed")))
        .bind(&lease.relay_id)
        .bind(lease.epoch)
        .bind(&placed.places)
        .bind(placed.first)
        .bind(placed.last)
        .bind(&placed.identities)
        .bind(placed.version)
        .bind(minutes)
        .bind(types)
        .bind(counts)
        .bind(sums)
        .execute(&mut *tx)
        .await?;
    let rows = placed.places.len() as u64;
    if deleted.rows_affected() != rows {
        tx.rollback().await?;
        return Ok(None);
    }
    let mut settled = Settled { rows };
    if !others.is_empty() {
        settled.rows += settle_each(&mut *tx, outbox, lease, others, OnSuccess::Delete).await?.rows;
    }
    tx.commit().await?;
    Ok(Some(settled))
}

/// Settles each row by its id, and adds those that are really gone to the ledger.
pub(super) async fn settle_each(
    executor: impl PgExecutor<'_>,
    outbox: &Outbox,
    lease: &Lease,
    delivered: &[&Delivery],
    on_success: OnSuccess,
) -> Result<Settled> {
    let statement = match on_success {
        OnSuccess::Delete => sql!("sql/settle.sql", "settle_delivered_delete"),
        OnSuccess::Archive => sql!("sql/settle.sql", "settle_delivered_archive"),
    };
    let row = sqlx::query(outbox.sql(statement))
        .bind(&lease.relay_id)
        .bind(lease.epoch)
        .bind(delivered.iter().map(|d| d.id).collect::<Vec<_>>())
        .bind(delivered.iter().map(|d| d.version).collect::<Vec<_>>())
        .bind(delivered.iter().map(|d| identity(&d.event_id)).collect::<Vec<_>>())
        .fetch_one(executor)
        .await?;
    settled(&row)
}

/// Parses an event id. A text that is not a UUID cannot be in the column, and neither can nil.
pub(super) fn identity(event_id: &str) -> Uuid {
    Uuid::parse_str(event_id).unwrap_or(Uuid::nil())
}

/// Reads `held` and `settled`, which every settling statement returns.
pub(super) fn settled(row: &sqlx::postgres::PgRow) -> Result<Settled> {
    let (held, rows): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    match held {
        0 => Err(StoreError::LeaseLost),
        _ => Ok(Settled { rows: rows.try_into().unwrap_or(0) }),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn rows(ids: impl IntoIterator<Item = i64>) -> Vec<Delivery> {
        let row = |id| Delivery {
            id,
            event_id: Uuid::from_u128(id.unsigned_abs().into()).to_string(),
            version: 1,
            place: NonZeroU64::new(id.unsigned_abs()),
            event_type: "Sent".to_owned(),
            created_at: DateTime::from_timestamp(61, 5).unwrap(),
            branches: 0,
            response: None,
        };
        ids.into_iter().map(row).collect()
    }

    #[test]
    fn each_row_has_its_identity_and_no_other_id_has_one_of_a_row() {
        let meant = rows((1_000..1_400).rev().filter(|id| id % 3 != 0));
        let (placed, others) = Placed::cut(&meant).unwrap();
        assert!(others.is_empty());
        assert_eq!((placed.first, placed.last, placed.places.len()), (1_000, 1_399, meant.len()));
        for (id, identity) in (1_000..1_400).zip(placed.identities) {
            assert_eq!(identity == Uuid::from_u128(id), id % 3 != 0, "row {id}");
            assert!(id % 3 != 0 || identity.as_u128() > 1_400, "row {id}");
        }
    }

    #[test]
    fn the_ledger_is_by_minute_and_type() {
        let mut meant = rows(1..=200);
        meant[0].event_type = "Recorded".to_owned();
        meant[1].created_at += TimeDelta::minutes(1);
        let (placed, _) = Placed::cut(&meant).unwrap();
        let lines: Vec<_> = placed.ledger.into_iter().collect();
        let minute = |n: i64| DateTime::from_timestamp(60 * n, 0).unwrap();
        assert_eq!(
            lines,
            [
                ((minute(1), "Recorded"), (1, 1)),
                ((minute(1), "Sent"), (198, (3..=200).sum())),
                ((minute(2), "Sent"), (1, 2)),
            ]
        );
    }

    #[test]
    fn rows_of_another_version_or_without_a_place_go_by_themselves() {
        let mut meant = rows(1..=200);
        meant[7].version = 5;
        meant[8].place = None;
        let (placed, others) = Placed::cut(&meant).unwrap();
        assert_eq!(placed.places.len(), 198);
        assert_eq!(others, [&meant[7], &meant[8]]);
    }

    #[test]
    fn few_rows_scattered_rows_and_repeated_rows_are_looked_up_by_id() {
        assert_eq!(Placed::cut(&[]), None);
        assert_eq!(Placed::cut(&rows(1..20)), None);
        assert_eq!(Placed::cut(&rows((1..200).map(|n| n * 50))), None);
        assert_eq!(Placed::cut(&rows((1..200).chain([150]))), None);
        assert_eq!(Placed::cut(&rows([i64::MIN, i64::MAX])), None);
    }
}
