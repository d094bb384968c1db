//! Migrations.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider::Outbox;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{PostgresStore, adopt};
use crate::columns::sql;
use crate::contract::{
    LANES, Maintenance, Result, Schema, SchemaState, ServerFacts, leave_newer_tables,
    schema_verdict, versions,
};
use crate::error::lost_to_another;
use crate::{Dedupe, OutboxSpec, StoreError};

/// One process migrates at a time; the number is arbitrary and used for nothing else.
const MIGRATION_LOCK: i64 = 0x706f_7374_7269;

/// Maximum number of attempts of a migration that loses deadlocks against relays.
const TRIES_MAX: u32 = 5;

/// Number of days for which archive partitions are created in advance.
pub(super) const PARTITION_DAYS_AHEAD: i64 = 3;

/// Number of dead letters of older tables that get their fingerprint per step.
const FINGERPRINT_CHUNK: u32 = 5_000;

const SHARED: [&str; 5] = [
    include_str!("migrations/shared_1.sql"),
    include_str!("migrations/shared_2.sql"),
    include_str!("migrations/shared_3.sql"),
    include_str!("migrations/buffer_1.sql"),
    include_str!("migrations/lane.sql"),
];
const OUTBOX: [&str; 6] = [
    include_str!("migrations/outbox_1.sql"),
    include_str!("migrations/outbox_2.sql"),
    include_str!("migrations/outbox_3.sql"),
    sql!("migrations/outbox_4.sql", "letters"),
    sql!("migrations/outbox_4.sql", "closed"),
    sql!("migrations/outbox_4.sql", "guard"),
];

/// Returns the files that set up one outbox, in order.
fn outbox_files(spec: &OutboxSpec) -> Vec<&'static str> {
    let mut files = OUTBOX.to_vec();
    files.push(match spec.dedupe {
        Dedupe::Open => sql!("migrations/dedupe.sql", "open"),
        Dedupe::Window(_) => sql!("migrations/dedupe.sql", "window"),
    });
    files.push(match spec.notify {
        true => sql!("migrations/notify.sql", "on"),
        false => sql!("migrations/notify.sql", "off"),
    });
    files
}

#[async_trait]
impl Schema for PostgresStore {
    async fn migrate(&self, outboxes: &[OutboxSpec]) -> Result<Vec<String>> {
        let mut tries = 1;
        let done = loop {
            match self.make_tables(outboxes).await {
                // A settle locks the outbox first and then the adopted table.
                Err(StoreError::Busy(error)) if lost_to_another(&error) && tries < TRIES_MAX => {
                    tries += 1;
                }
                done => break done?,
            }
        };
        for spec in outboxes {
            self.add_archive_partitions(&spec.outbox).await?;
            while self.fingerprint_dead_letters(&spec.outbox, FINGERPRINT_CHUNK).await? > 0 {}
        }
        Ok(done)
    }

    fn migration_sql(&self, outboxes: &[OutboxSpec]) -> String {
        let mut text = SHARED.join("\n");
        text.push_str(&format!(
            "\nDELETE FROM postrider_schema;\n\
             INSERT INTO postrider_schema (version, oldest_relay) VALUES ({}, {});\n",
            versions::SCHEMA,
            versions::OLDEST_RELAY
        ));
        text.push_str(sql!("sql/schema.sql", "grants_consumer"));
        for spec in outboxes {
            for file in outbox_files(spec).into_iter().chain([sql!("sql/schema.sql", "grants")]) {
                let AssertSqlSafe(sql) = spec.outbox.sql(file);
                text.push('\n');
                text.push_str(&sql);
            }
            text.push_str(&format!(
                "\nINSERT INTO postrider_outboxes (name, table_name, version, claim) \
                 VALUES ('{name}', '{}', {}, '{}')\n    ON CONFLICT (name) DO NOTHING;\n\
                 INSERT INTO postrider_lanes (outbox, lane) SELECT '{name}', lane \
                 FROM generate_series(0, {} - 1) AS lane\n    ON CONFLICT DO NOTHING;\n",
                spec.outbox.table(),
                versions::SCHEMA,
                spec.claim,
                LANES,
                name = spec.outbox.name(),
            ));
        }
        text
    }

    async fn schema_state(&self, outboxes: &[Outbox]) -> Result<SchemaState> {
        let mut connection = self.pool.acquire().await?;
        let found = found_version(&mut connection).await?;
        let known = match found {
            Some(_) => known_outboxes(&mut connection).await?,
            None => Vec::new(),
        };
        Ok(schema_verdict(found, &known, outboxes))
    }

    async fn drop_outbox(&self, outbox: &Outbox) -> Result<()> {
        let mut tx = self.begin().await?;
        adopt::forget(&mut tx, outbox).await?;
        sqlx::raw_sql(outbox.sql(sql!("sql/schema.sql", "drop_outbox"))).execute(&mut *tx).await?;
        for statement in [
            "DELETE FROM postrider_outboxes WHERE name = $1",
            "DELETE FROM postrider_lanes WHERE outbox = $1",
            "DELETE FROM postrider_parked_keys WHERE outbox = $1",
            "DELETE FROM postrider_jobs WHERE outbox = $1",
            "DELETE FROM postrider_pauses WHERE kind = 'outbox' AND name = $1",
        ] {
            sqlx::query(statement).bind(outbox.name()).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn server_facts(&self) -> Result<ServerFacts> {
        let row = sqlx::query(
            "SELECT current_setting('server_version'), current_setting('fsync'),
                    current_setting('synchronous_commit'), current_setting('full_page_writes')",
        )
        .fetch_one(&self.pool)
        .await?;
        let version: String = row.try_get(0)?;
        let mut durability = BTreeMap::new();
        for (index, name) in ["fsync", "synchronous_commit", "full_page_writes"].iter().enumerate()
        {
            durability.insert((*name).to_owned(), row.try_get(index + 1)?);
        }
        Ok(ServerFacts { version: format!("PostgreSQL {version}"), durability })
    }
}

/// Adds an outbox and its lanes to the shared tables.
async fn record_outbox(connection: &mut PgConnection, spec: &OutboxSpec) -> Result<()> {
    sqlx::query(
        "INSERT INTO postrider_outboxes (name, table_name, version, claim)
         VALUES ($1, $2, $3, $4)
         ON CONFLICT (name) DO UPDATE
         SET table_name = excluded.table_name, version = excluded.version",
    )
    .bind(spec.outbox.name())
    .bind(spec.outbox.table())
    .bind(versions::SCHEMA)
    .bind(spec.claim.as_str())
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO postrider_lanes (outbox, lane)
         SELECT $1, lane FROM generate_series(0, $2 - 1) AS lane ON CONFLICT DO NOTHING",
    )
    .bind(spec.outbox.name())
    .bind(i32::from(LANES))
    .execute(&mut *connection)
    .await?;
    Ok(())
}

/// Returns `version` and `oldest_relay` of the shared tables, if they exist.
async fn found_version(connection: &mut PgConnection) -> Result<Option<(i32, i32)>> {
    let present: bool = sqlx::query_scalar("SELECT to_regclass('postrider_schema') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !present {
        return Ok(None);
    }
    let select = "SELECT version, oldest_relay FROM postrider_schema";
    Ok(sqlx::query_as(select).fetch_optional(connection).await?)
}

/// Returns name, table and version of each outbox.
async fn known_outboxes(connection: &mut PgConnection) -> Result<Vec<(String, String, i32)>> {
    let select = "SELECT name, table_name, version FROM postrider_outboxes";
    Ok(sqlx::query_as(select).fetch_all(connection).await?)
}

impl PostgresStore {
    /// Creates or updates all tables, in one transaction.
    async fn make_tables(&self, outboxes: &[OutboxSpec]) -> Result<Vec<String>> {
        let mut done = Vec::new();
        let mut tx = self.begin().await?;
        // Suppresses "already exists, skipping", which every second run would print.
        sqlx::raw_sql("SET LOCAL client_min_messages = warning; SET LOCAL lock_timeout = '30s'")
            .execute(&mut *tx)
            .await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(MIGRATION_LOCK)
            .execute(&mut *tx)
            .await?;
        let found = found_version(&mut tx).await?;
        if found.is_some_and(|(version, _)| version > versions::SCHEMA) {
            let wanted: Vec<Outbox> = outboxes.iter().map(|spec| spec.outbox.clone()).collect();
            let known = known_outboxes(&mut tx).await?;
            return leave_newer_tables(schema_verdict(found, &known, &wanted));
        }
        // Functions keep the search path they are created with; a temporary table must not come
        // first in it.
        sqlx::raw_sql(
            "SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true)",
        )
        .execute(&mut *tx)
        .await?;
        adopt::lock_tables(&mut tx, outboxes).await?;
        for file in SHARED {
            sqlx::raw_sql(file).execute(&mut *tx).await?;
        }
        sqlx::raw_sql("DELETE FROM postrider_schema").execute(&mut *tx).await?;
        sqlx::query("INSERT INTO postrider_schema (version, oldest_relay) VALUES ($1, $2)")
            .bind(versions::SCHEMA)
            .bind(versions::OLDEST_RELAY)
            .execute(&mut *tx)
            .await?;
        done.push(format!("shared tables at version {}", versions::SCHEMA));
        for spec in outboxes {
            for file in outbox_files(spec) {
                sqlx::raw_sql(spec.outbox.sql(file)).execute(&mut *tx).await?;
            }
            record_outbox(&mut tx, spec).await?;
            done.push(format!(
                "outbox {} (table {}) at version {}",
                spec.outbox.name(),
                spec.outbox.table(),
                versions::SCHEMA
            ));
            done.extend(match &spec.adoption {
                Some(adoption) => adopt::set_up(&mut tx, spec, adoption).await?,
                None => adopt::remove(&mut tx, &spec.outbox).await?,
            });
        }
        tx.commit().await?;
        Ok(done)
    }

    /// Creates the archive's partitions for the coming days. Today's is created only while the
    /// default partition has no rows of today, because a partition may not overlap with its rows.
    pub(super) async fn add_archive_partitions(&self, outbox: &Outbox) -> Result<()> {
        for ahead in 0..=PARTITION_DAYS_AHEAD {
            let day = chrono::Utc::now().date_naive() + chrono::Duration::days(ahead);
            let next = day + chrono::Duration::days(1);
            let table = outbox.table();
            let statement = format!(
                "CREATE TABLE IF NOT EXISTS \"{table}_archive_{}\" PARTITION OF \
                 \"{table}_archive\" FOR VALUES FROM ('{day} 00:00:00+00') \
                 TO ('{next} 00:00:00+00')",
                day.format("%Y%m%d")
            );
            let mut tx = self.begin().await?;
            // IF NOT EXISTS still fails if two processes create at the same moment.
            sqlx::raw_sql(
                "SET LOCAL client_min_messages = warning; SET LOCAL lock_timeout = '30s'",
            )
            .execute(&mut *tx)
            .await?;
            sqlx::query("SELECT pg_advisory_xact_lock($1)")
                .bind(MIGRATION_LOCK)
                .execute(&mut *tx)
                .await?;
            // A new partition locks the default one: briefly, or not at all.
            sqlx::raw_sql("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
            match sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await {
                Ok(_) => tx.commit().await?,
                // 23514: the default partition has rows of that day; they stay there.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("23514") => {}
                // 42501: the relay does not own the tables; the default partition takes the rows.
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42501") => {
                    tracing::debug!(outbox = outbox.name(), "no right to make archive partitions");
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
