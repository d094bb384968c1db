//! Migrations.

use async_trait::async_trait;
use postrider::Outbox;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::adopt::refuse_adoptions;
use super::{On, ROWS_MAX, SqliteStore};
use crate::columns::sql;
use crate::contract::{
    LANES, Maintenance, Result, Schema, SchemaState, ServerFacts, leave_newer_tables,
    schema_verdict, versions,
};
use crate::{Dedupe, OutboxSpec};

const SHARED: [&str; 4] = [
    include_str!("migrations/shared_1.sql"),
    include_str!("migrations/shared_2.sql"),
    include_str!("migrations/shared_3.sql"),
    include_str!("migrations/buffer_1.sql"),
];
const OUTBOX: [&str; 1] = [include_str!("migrations/outbox_1.sql")];
const FINGERPRINT: &str = sql!("migrations/outbox_2.sql", "column");
const RESPONSE: &str = include_str!("migrations/outbox_3.sql");
const LETTERS: &str = sql!("migrations/outbox_4.sql", "letters");
const ARCHIVE: &str = include_str!("migrations/outbox_5.sql");
const CORRECT: &str = sql!("migrations/outbox_4.sql", "correct");

/// The additions of later versions that exist already. SQLite cannot add a column twice, and rows
/// from before the guard are corrected once.
#[derive(Clone, Copy, Default)]
struct Present {
    fingerprint: bool,
    response: bool,
    letters: bool,
    /// The archive accepts an id more than once.
    archive: bool,
    guard: bool,
}

/// Returns the files that set up one outbox, in order.
fn outbox_files(spec: &OutboxSpec, has: Present) -> Vec<&'static str> {
    let mut files = OUTBOX.to_vec();
    files.extend((!has.fingerprint).then_some(FINGERPRINT));
    files.push(sql!("migrations/outbox_2.sql", "indexes"));
    files.extend((!has.response).then_some(RESPONSE));
    files.extend((!has.letters).then_some(LETTERS));
    files.extend((!has.archive).then_some(ARCHIVE));
    files.push(sql!("migrations/outbox_4.sql", "closed"));
    files.extend((!has.guard).then_some(CORRECT));
    files.push(sql!("migrations/outbox_4.sql", "guard"));
    files.push(match spec.dedupe {
        Dedupe::Open => sql!("migrations/dedupe.sql", "open"),
        Dedupe::Window(_) => sql!("migrations/dedupe.sql", "window"),
    });
    files
}

#[async_trait]
impl Schema for SqliteStore {
    async fn migrate(&self, outboxes: &[OutboxSpec]) -> Result<Vec<String>> {
        refuse_adoptions(outboxes)?;
        let mut done = Vec::new();
        // The write lock ensures that one process migrates at a time.
        let mut tx = self.begin().await?;
        let found = found_version(&mut tx).await.on(self)?;
        if found.is_some_and(|(version, _)| version > versions::SCHEMA) {
            let wanted: Vec<Outbox> = outboxes.iter().map(|spec| spec.outbox.clone()).collect();
            let known = known_outboxes(&mut tx).await.on(self)?;
            return leave_newer_tables(schema_verdict(found, &known, &wanted));
        }
        for file in SHARED {
            sqlx::raw_sql(file).execute(&mut *tx).await.on(self)?;
        }
        sqlx::raw_sql("DELETE FROM postrider_schema").execute(&mut *tx).await.on(self)?;
        sqlx::query("INSERT INTO postrider_schema (version, oldest_relay) VALUES ($1, $2)")
            .bind(versions::SCHEMA)
            .bind(versions::OLDEST_RELAY)
            .execute(&mut *tx)
            .await
            .on(self)?;
        done.push(format!("shared tables at version {}", versions::SCHEMA));
        for spec in outboxes {
            let table = spec.outbox.table();
            let has = Present {
                fingerprint: has_column(&mut tx, &format!("{table}_dlq"), "fingerprint")
                    .await
                    .on(self)?,
                response: has_column(&mut tx, table, "response").await.on(self)?,
                letters: has_column(&mut tx, &format!("{table}_dlq"), "expires_at")
                    .await
                    .on(self)?,
                archive: !archives_ids_once(&mut tx, table).await.on(self)?,
                guard: has_guard(&mut tx, table).await.on(self)?,
            };
            for file in outbox_files(spec, has) {
                sqlx::raw_sql(spec.outbox.sql(file)).execute(&mut *tx).await.on(self)?;
            }
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
            .execute(&mut *tx)
            .await
            .on(self)?;
            sqlx::raw_sql(AssertSqlSafe(lanes_sql(&spec.outbox)))
                .execute(&mut *tx)
                .await
                .on(self)?;
            done.push(format!(
                "outbox {} (table {}) at version {}",
                spec.outbox.name(),
                spec.outbox.table(),
                versions::SCHEMA
            ));
        }
        tx.commit().await.on(self)?;
        for spec in outboxes {
            while self.fingerprint_dead_letters(&spec.outbox, ROWS_MAX).await? > 0 {}
        }
        Ok(done)
    }

    fn migration_sql(&self, outboxes: &[OutboxSpec]) -> String {
        // WAL is a property of the file, and cannot be set inside a transaction.
        let mut text = "PRAGMA journal_mode = WAL;\n\n".to_owned();
        text.push_str(&SHARED.join("\n"));
        text.push_str(&format!(
            "\nDELETE FROM postrider_schema;\n\
             INSERT INTO postrider_schema (version, oldest_relay) VALUES ({}, {});\n",
            versions::SCHEMA,
            versions::OLDEST_RELAY
        ));
        for spec in outboxes {
            let files = outbox_files(spec, Present::default());
            for file in files.into_iter().chain([sql!("sql/schema.sql", "grants")]) {
                let AssertSqlSafe(sql) = spec.outbox.sql(file);
                text.push('\n');
                text.push_str(&sql);
            }
            text.push_str(&format!(
                "\nINSERT INTO postrider_outboxes (name, table_name, version, claim) \
                 VALUES ('{}', '{}', {}, '{}')\n    ON CONFLICT (name) DO NOTHING;\n{};\n",
                spec.outbox.name(),
                spec.outbox.table(),
                versions::SCHEMA,
                spec.claim,
                lanes_sql(&spec.outbox)
            ));
        }
        text
    }

    async fn schema_state(&self, outboxes: &[Outbox]) -> Result<SchemaState> {
        let mut connection = self.readers.acquire().await.on(self)?;
        let found = found_version(&mut connection).await.on(self)?;
        let known = match found {
            Some(_) => known_outboxes(&mut connection).await.on(self)?,
            None => Vec::new(),
        };
        Ok(schema_verdict(found, &known, outboxes))
    }

    async fn drop_outbox(&self, outbox: &Outbox) -> Result<()> {
        let mut tx = self.begin().await?;
        sqlx::raw_sql(outbox.sql(sql!("sql/schema.sql", "drop_outbox")))
            .execute(&mut *tx)
            .await
            .on(self)?;
        for statement in [
            "DELETE FROM postrider_outboxes WHERE name = $1",
            "DELETE FROM postrider_lanes WHERE outbox = $1",
            "DELETE FROM postrider_parked_keys WHERE outbox = $1",
            "DELETE FROM postrider_jobs WHERE outbox = $1",
            "DELETE FROM postrider_pauses WHERE kind = 'outbox' AND name = $1",
        ] {
            sqlx::query(statement).bind(outbox.name()).execute(&mut *tx).await.on(self)?;
        }
        tx.commit().await.on(self)
    }

    async fn server_facts(&self) -> Result<ServerFacts> {
        let version: String = sqlx::query_scalar("SELECT sqlite_version()")
            .fetch_one(&self.readers)
            .await
            .on(self)?;
        let journal_mode: String =
            sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&self.writer).await.on(self)?;
        let synchronous: i64 =
            sqlx::query_scalar("PRAGMA synchronous").fetch_one(&self.writer).await.on(self)?;
        let synchronous = match synchronous {
            0 => "off",
            1 => "normal",
            2 => "full",
            _ => "extra",
        };
        Ok(ServerFacts {
            version: format!("SQLite {version}"),
            durability: [
                ("journal_mode".to_owned(), journal_mode),
                ("synchronous".to_owned(), synchronous.to_owned()),
            ]
            .into(),
        })
    }
}

/// Returns the SQL that inserts the lanes of an outbox. Its name is a validated identifier.
fn lanes_sql(outbox: &Outbox) -> String {
    let row = |lane| format!("('{}', {lane})", outbox.name());
    let rows = (0..LANES).map(row).collect::<Vec<_>>().join(", ");
    format!("INSERT OR IGNORE INTO postrider_lanes (outbox, lane) VALUES {rows}")
}

/// Returns `version` and `oldest_relay` of the shared tables, if they exist.
async fn found_version(
    connection: &mut SqliteConnection,
) -> std::result::Result<Option<(i32, i32)>, sqlx::Error> {
    let select = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'postrider_schema')";
    let present: bool = sqlx::query_scalar(select).fetch_one(&mut *connection).await?;
    if !present {
        return Ok(None);
    }
    let select = "SELECT version, oldest_relay FROM postrider_schema";
    sqlx::query_as(select).fetch_optional(connection).await
}

async fn has_column(
    connection: &mut SqliteConnection,
    table: &str,
    column: &str,
) -> std::result::Result<bool, sqlx::Error> {
    let select = "SELECT EXISTS (SELECT 1 FROM pragma_table_info($1) WHERE name = $2)";
    sqlx::query_scalar(select).bind(table).bind(column).fetch_one(connection).await
}

/// Returns whether the archive exists and holds each id only once.
async fn archives_ids_once(
    connection: &mut SqliteConnection,
    table: &str,
) -> std::result::Result<bool, sqlx::Error> {
    let select = "SELECT count(*) = 1 FROM pragma_table_info($1) WHERE pk > 0";
    sqlx::query_scalar(select).bind(format!("{table}_archive")).fetch_one(connection).await
}

/// Returns whether rows of the table have been corrected, and are guarded since.
async fn has_guard(
    connection: &mut SqliteConnection,
    table: &str,
) -> std::result::Result<bool, sqlx::Error> {
    let select = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = $1)";
    sqlx::query_scalar(select).bind(format!("{table}_guard")).fetch_one(connection).await
}

/// Returns name, table and version of each outbox.
async fn known_outboxes(
    connection: &mut SqliteConnection,
) -> std::result::Result<Vec<(String, String, i32)>, sqlx::Error> {
    let select = "SELECT name, table_name, version FROM postrider_outboxes";
    sqlx::query_as(select).fetch_all(connection).await
}
