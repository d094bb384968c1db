//! The steps of every settle: lock the rows that are unchanged, and act on exactly these.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use postrider::Outbox;
use serde_json::json;
use sqlx::mysql::MySqlConnection;

use super::MysqlStore;
use crate::StoreError;
use crate::columns::sql;
use crate::contract::{Delivery, Lease, OnSuccess, Result, Settled, check_copies};

/// Maximum size of the JSON of one settling statement; the server's default packet limit is 16 MiB.
const STATEMENT_BYTES_MAX: usize = 1024 * 1024;

/// A row to settle.
pub(super) struct SettleRow<'a> {
    id: i64,
    event_id: &'a str,
    /// The values that the statements need, as a JSON array: id, version, and more.
    values: String,
}

impl<'a> SettleRow<'a> {
    pub(super) fn new(id: i64, event_id: &'a str, values: String) -> Self {
        Self { id, event_id, values }
    }
}

impl MysqlStore {
    /// Settles in one transaction: locks the rows that are unchanged since they were claimed or
    /// read, then runs `statements` in turn on these, as JSON. With a ledger kind the rows are
    /// added to the ledger first and removed last.
    pub(super) async fn settle(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        mut rows: Vec<SettleRow<'_>>,
        ledger: Option<&'static str>,
        statements: &[&'static str],
    ) -> Result<Settled> {
        // In id order, like every writer that locks several rows.
        rows.sort_unstable_by_key(|row| row.id);
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
        let mut settled = 0;
        for batch in statement_batches(&rows) {
            let identities = batch.iter().map(|row| (row.id, row.event_id)).collect();
            let held = hold(&mut tx, outbox, lease, json_array(batch), &identities).await?;
            if held.is_empty() {
                continue;
            }
            let ids: HashSet<i64> = held.iter().map(|(id, ..)| *id).collect();
            let batch = json_array(batch.iter().filter(|row| ids.contains(&row.id)));
            act(&mut tx, outbox, &batch, ledger.map(|kind| (kind, &held[..])), statements).await?;
            settled += held.len();
        }
        tx.commit().await?;
        Ok(Settled { rows: u64::try_from(settled).unwrap_or(u64::MAX) })
    }

    /// Like [`MysqlStore::settle`], with copies of the rows in other outboxes.
    pub(super) async fn settle_copies(
        &self,
        outbox: &Outbox,
        lease: &Lease,
        delivered: &[Delivery],
        children: &[Outbox],
        on_success: OnSuccess,
    ) -> Result<Settled> {
        let mut rows: Vec<&Delivery> = delivered.iter().collect();
        rows.sort_unstable_by_key(|row| row.id);
        let mut tx = self.begin_held(lease).await?.ok_or(StoreError::LeaseLost)?;
        let versions: Vec<_> = rows.iter().map(|row| [row.id, row.version]).collect();
        let identities = rows.iter().map(|row| (row.id, row.event_id.as_str())).collect();
        let versions = json!(versions).to_string();
        let held = hold(&mut tx, outbox, lease, versions, &identities).await?;
        let ids: HashSet<i64> = held.iter().map(|(id, ..)| *id).collect();
        rows.retain(|row| ids.contains(&row.id));
        for (branch, child) in children.iter().enumerate() {
            let taken = rows.iter().filter(|row| row.goes_to(branch));
            let taken: Vec<i64> = taken.map(|row| row.id).collect();
            if taken.is_empty() {
                continue;
            }
            let known: HashSet<i64> =
                sqlx::query_scalar(outbox.sql_to(child, sql!("sql/settle.sql", "fan_out_known")))
                    .bind(ids_json(&taken))
                    .fetch_all(&mut *tx)
                    .await?
                    .into_iter()
                    .collect();
            let marked: Vec<_> =
                taken.iter().map(|id| [*id, i64::from(known.contains(id))]).collect();
            let copied = sqlx::query(outbox.sql_to(child, sql!("sql/settle.sql", "fan_out_copy")))
                .bind(json!(marked).to_string())
                .execute(&mut *tx)
                .await?;
            check_copies(child, taken.len(), copied.rows_affected())?;
        }
        let all: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let leaving = Some(("delivered", &held[..]));
        act(&mut tx, outbox, &ids_json(&all), leaving, kept(on_success)).await?;
        tx.commit().await?;
        Ok(Settled { rows: u64::try_from(held.len()).unwrap_or(u64::MAX) })
    }
}

/// Returns the statements that keep delivered rows before they are removed.
pub(super) fn kept(on_success: OnSuccess) -> &'static [&'static str] {
    match on_success {
        OnSuccess::Delete => &[],
        OnSuccess::Archive => &[sql!("sql/settle.sql", "settle_delivered_archive")],
    }
}

/// Id, event type and creation time, which the ledger needs of a row that leaves.
pub(super) type LockedRow = (i64, String, DateTime<Utc>);

/// Locks rows and returns those that are unchanged since they were claimed or read. The others were
/// settled before, belong to another relay, or are other events under reused ids.
async fn hold(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    lease: &Lease,
    versions: String,
    identities: &HashMap<i64, &str>,
) -> Result<Vec<LockedRow>> {
    type Found = (i64, String, DateTime<Utc>, String);
    let found: Vec<Found> = sqlx::query_as(outbox.sql(sql!("sql/settle.sql", "held")))
        .bind(versions)
        .bind(&lease.relay_id)
        .fetch_all(connection)
        .await?;
    let same = |row: &Found| identities.get(&row.0).is_some_and(|event_id| *event_id == row.3);
    Ok(found.into_iter().filter(same).map(|(id, kind, at, _)| (id, kind, at)).collect())
}

/// Acts on locked rows: see [`MysqlStore::settle`]. `leaving` has the rows if they leave the
/// outbox.
pub(super) async fn act(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    batch: &str,
    leaving: Option<(&'static str, &[LockedRow])>,
    statements: &[&'static str],
) -> Result<()> {
    if let Some((kind, rows)) = leaving {
        sqlx::query(outbox.sql(sql!("sql/settle.sql", "record")))
            .bind(kind)
            .bind(ledger_lines(rows))
            .execute(&mut *connection)
            .await?;
    }
    let remove = leaving.map(|_| sql!("sql/settle.sql", "remove"));
    for statement in statements.iter().copied().chain(remove) {
        sqlx::query(outbox.sql(statement)).bind(batch).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Sums up counts and ids by minute and event type, in the format of `ledger.sql`.
fn ledger_lines(rows: &[LockedRow]) -> String {
    let mut lines: BTreeMap<(i64, &str), (i64, i128)> = BTreeMap::new();
    for (id, event_type, created_at) in rows {
        let minute = created_at.timestamp().div_euclid(60);
        let line = lines.entry((minute, event_type)).or_default();
        *line = (line.0 + 1, line.1 + i128::from(*id));
    }
    let line = |((minute, event_type), (count, id_sum)): ((i64, &str), (i64, i128))| {
        let minute = DateTime::from_timestamp(minute * 60, 0).unwrap_or_default();
        json!([minute.format("%F %T").to_string(), event_type, count, id_sum.to_string()])
    };
    json!(lines.into_iter().map(line).collect::<Vec<_>>()).to_string()
}

/// Formats ids as `[[1],[2]]`: statements expect them at the first position of a row.
pub(super) fn ids_json(ids: &[i64]) -> String {
    json!(ids.iter().map(|id| [id]).collect::<Vec<_>>()).to_string()
}

fn json_array<'a>(rows: impl IntoIterator<Item = &'a SettleRow<'a>>) -> String {
    let rows: Vec<&str> = rows.into_iter().map(|row| row.values.as_str()).collect();
    format!("[{}]", rows.join(","))
}

/// Splits rows into statements of limited size: the errors of a thousand dead letters add up to 9
/// MB.
fn statement_batches<'a, 'b>(mut rows: &'b [SettleRow<'a>]) -> Vec<&'b [SettleRow<'a>]> {
    let mut batches = Vec::new();
    while !rows.is_empty() {
        let mut bytes = 0;
        let fitting = rows.iter().take_while(|row| {
            bytes += row.values.len() + 1;
            bytes <= STATEMENT_BYTES_MAX
        });
        let (batch, rest) = rows.split_at(fitting.count().max(1));
        batches.push(batch);
        rows = rest;
    }
    batches
}
