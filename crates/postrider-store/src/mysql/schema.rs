//! Migrations. DDL commits implicitly here, so each step can run again after an interruption, and
//! one connection holds a named lock during the migration.

use async_trait::async_trait;
use postrider::Outbox;
use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use super::server::Server;
use super::{MysqlStore, adopt};
use crate::columns::sql;
use crate::contract::{
    LANES, Maintenance, Result, Schema, SchemaState, ServerFacts, leave_newer_tables,
    schema_verdict, versions,
};
use crate::{Dedupe, OutboxSpec, StoreError};

/// One process migrates a database at a time. Lock names are global to the server, and short.
/// MySQL 9 has no MD5.
const MIGRATION_LOCK: &str = "SELECT GET_LOCK(CONCAT('postrider_',
    /*M! MD5(DATABASE()) *//*!80000 LEFT(SHA2(DATABASE(), 256), 32) */), 30)";
const MIGRATION_UNLOCK: &str = "SELECT RELEASE_LOCK(CONCAT('postrider_',
    /*M! MD5(DATABASE()) *//*!80000 LEFT(SHA2(DATABASE(), 256), 32) */))";

const SHARED: [&str; 4] = [
    include_str!("migrations/shared_1.sql"),
    include_str!("migrations/shared_2.sql"),
    include_str!("migrations/shared_3.sql"),
    include_str!("migrations/buffer_1.sql"),
];
const OUTBOX: [&str; 2] =
    [include_str!("migrations/outbox_1.sql"), sql!("migrations/outbox_4.sql", "closed")];
const FINGERPRINT: &str = sql!("migrations/outbox_2.sql", "column");
const DLQ_INDEXES: &str = sql!("migrations/outbox_2.sql", "indexes");
/// Number of dead letters of older tables that get their fingerprint per step.
const FINGERPRINT_CHUNK: u32 = 5_000;
const RESPONSE: &str = include_str!("migrations/outbox_3.sql");
const LETTERS: &str = sql!("migrations/outbox_4.sql", "letters");
const CHECKS: &str = sql!("migrations/outbox_4.sql", "checks");
const CORRECT: &str = sql!("migrations/outbox_4.sql", "correct");
const GUARD: &str = sql!("migrations/outbox_4.sql", "guard");
const EVENT_ID: &str = sql!("migrations/outbox_5.sql", "event_id");
const ARCHIVE: &str = sql!("migrations/outbox_5.sql", "archive");
const APPENDED: &str = include_str!("migrations/trigger_1.sql");
const FORGET: &str = sql!("migrations/dedupe.sql", "open");
const REMEMBER: &str = sql!("migrations/dedupe.sql", "window");

#[async_trait]
impl Schema for MysqlStore {
    async fn migrate(&self, outboxes: &[OutboxSpec]) -> Result<Vec<String>> {
        let mut connection = self.pool.acquire().await?;
        // Closing the connection releases the lock on every path.
        connection.close_on_drop();
        let locked: Option<i64> =
            sqlx::query_scalar(MIGRATION_LOCK).fetch_one(&mut *connection).await?;
        if locked != Some(1) {
            return Err(StoreError::Schema(
                "another process has been migrating this database for 30 seconds".to_owned(),
            ));
        }
        let done = migrate_locked(&mut connection, self.server().await?, outboxes).await;
        sqlx::query(MIGRATION_UNLOCK).execute(&mut *connection).await?;
        let done = done?;
        for spec in outboxes {
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
            let mut add = |file: &'static str| {
                let AssertSqlSafe(sql) = spec.outbox.sql(file);
                text.push('\n');
                text.push_str(&sql);
            };
            let plain = [FINGERPRINT, RESPONSE, LETTERS, CHECKS, EVENT_ID, ARCHIVE];
            OUTBOX.into_iter().chain(plain).for_each(&mut add);
            // The body contains semicolons; these lines are for the command-line client.
            add("DELIMITER //\n");
            add(APPENDED);
            add("//\n");
            add(GUARD);
            add("//\nDELIMITER ;\n");
            add(match spec.dedupe {
                Dedupe::Open => FORGET,
                Dedupe::Window(_) => REMEMBER,
            });
            add(sql!("sql/schema.sql", "grants"));
            text.push_str(&format!(
                "\nINSERT IGNORE INTO postrider_outboxes (name, table_name, version, claim) \
                 VALUES ('{}', '{}', {}, '{}');\n\
                 INSERT IGNORE INTO postrider_lanes (outbox, lane) VALUES\n    {};\n",
                spec.outbox.name(),
                spec.outbox.table(),
                versions::SCHEMA,
                spec.claim,
                lane_rows(&spec.outbox)
            ));
        }
        self.server.get().map_or(text.clone(), |server| server.plain(&text))
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
        let server = self.server().await?;
        adopt::forget(&mut *self.pool.acquire().await?, server, outbox).await?;
        sqlx::raw_sql(outbox.sql(sql!("sql/schema.sql", "drop_outbox")))
            .execute(&self.pool)
            .await?;
        for statement in [
            "DELETE FROM postrider_outboxes WHERE name = ?",
            "DELETE FROM postrider_lanes WHERE outbox = ?",
            "DELETE FROM postrider_parked_keys WHERE outbox = ?",
            "DELETE FROM postrider_jobs WHERE outbox = ?",
            "DELETE FROM postrider_pauses WHERE kind = 'outbox' AND name = ?",
        ] {
            sqlx::query(statement).bind(outbox.name()).execute(&self.pool).await?;
        }
        Ok(())
    }

    async fn server_facts(&self) -> Result<ServerFacts> {
        let (version, flush, doublewrite): (String, String, String) = sqlx::query_as(
            "SELECT VERSION(), CAST(@@innodb_flush_log_at_trx_commit AS CHAR),
                    CAST(@@innodb_doublewrite AS CHAR)",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(ServerFacts {
            version,
            durability: [
                ("innodb_flush_log_at_trx_commit".to_owned(), flush),
                ("innodb_doublewrite".to_owned(), doublewrite),
            ]
            .into(),
        })
    }
}

/// Returns `version` and `oldest_relay` of the shared tables, if they exist. Both tables must
/// exist, because an interrupted migration leaves the first without the second.
async fn found_version(connection: &mut MySqlConnection) -> Result<Option<(i32, i32)>> {
    let present: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.TABLES
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN
             ('postrider_schema', 'postrider_outboxes')",
    )
    .fetch_one(&mut *connection)
    .await?;
    if present < 2 {
        return Ok(None);
    }
    let select = "SELECT version, oldest_relay FROM postrider_schema";
    Ok(sqlx::query_as(select).fetch_optional(connection).await?)
}

/// Returns name, table and version of each outbox.
async fn known_outboxes(connection: &mut MySqlConnection) -> Result<Vec<(String, String, i32)>> {
    let select = "SELECT name, table_name, version FROM postrider_outboxes";
    Ok(sqlx::query_as(select).fetch_all(connection).await?)
}

async fn migrate_locked(
    connection: &mut MySqlConnection,
    server: Server,
    outboxes: &[OutboxSpec],
) -> Result<Vec<String>> {
    let found = found_version(connection).await?;
    if found.is_some_and(|(version, _)| version > versions::SCHEMA) {
        let wanted: Vec<Outbox> = outboxes.iter().map(|spec| spec.outbox.clone()).collect();
        let known = known_outboxes(connection).await?;
        return leave_newer_tables(schema_verdict(found, &known, &wanted));
    }
    let mut done = Vec::new();
    for file in SHARED {
        server.create(connection, file).await?;
    }
    // One statement, so that a concurrent reader always finds a version.
    sqlx::query(
        "INSERT INTO postrider_schema (version, oldest_relay) VALUES (?, ?)
         ON DUPLICATE KEY UPDATE oldest_relay = VALUES(oldest_relay)",
    )
    .bind(versions::SCHEMA)
    .bind(versions::OLDEST_RELAY)
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM postrider_schema WHERE version <> ?")
        .bind(versions::SCHEMA)
        .execute(&mut *connection)
        .await?;
    done.push(format!("shared tables at version {}", versions::SCHEMA));
    for spec in outboxes {
        migrate_outbox(connection, server, spec).await?;
        done.push(format!(
            "outbox {} (table {}) at version {}",
            spec.outbox.name(),
            spec.outbox.table(),
            versions::SCHEMA
        ));
        done.extend(match &spec.adoption {
            Some(adoption) => adopt::set_up(connection, server, spec, adoption).await?,
            None => adopt::remove(connection, server, &spec.outbox).await?,
        });
    }
    Ok(done)
}

/// Creates the tables, then their triggers. A trigger is changed only if necessary: even `IF NOT
/// EXISTS` waits for every open transaction on the table, and all writers wait behind it.
async fn migrate_outbox(
    connection: &mut MySqlConnection,
    server: Server,
    spec: &OutboxSpec,
) -> Result<()> {
    let outbox = &spec.outbox;
    let sql_of = |file| {
        let AssertSqlSafe(sql) = outbox.sql(file);
        sql
    };
    for file in OUTBOX {
        server.create(connection, &sql_of(file)).await?;
    }
    if !has_column(connection, &format!("{}_dlq", outbox.table()), "fingerprint").await? {
        server.create(connection, &sql_of(FINGERPRINT)).await?;
    }
    if !has_dlq_indexes(connection, outbox).await? {
        server.create(connection, &sql_of(DLQ_INDEXES)).await?;
    }
    // The archive's column is added last, so it shows whether both exist.
    if !has_column(connection, &format!("{}_archive", outbox.table()), "response").await? {
        server.create(connection, &sql_of(RESPONSE)).await?;
    }
    if !has_column(connection, &format!("{}_dlq", outbox.table()), "expires_at").await? {
        server.create(connection, &sql_of(LETTERS)).await?;
    }
    if has_clock_in_event_id(connection, outbox).await? {
        server.create(connection, &sql_of(EVENT_ID)).await?;
    }
    if archives_ids_once(connection, outbox).await? {
        server.create(connection, &sql_of(ARCHIVE)).await?;
    }
    if !has_trigger(connection, outbox, "appended").await? {
        sqlx::raw_sql(outbox.sql(APPENDED)).execute(&mut *connection).await?;
    }
    if !has_checks(connection, outbox).await? {
        if server == Server::MySql {
            // There, the ALTER checks the existing rows.
            server.create(connection, &sql_of(CORRECT)).await?;
        }
        server.create(connection, &sql_of(CHECKS)).await?;
    }
    if !has_trigger(connection, outbox, "guard").await? {
        // The checks exist by now, so no more rows that need correction can be inserted.
        server.create(connection, &sql_of(CORRECT)).await?;
        sqlx::raw_sql(outbox.sql(GUARD)).execute(&mut *connection).await?;
    }
    let forgets = has_trigger(connection, outbox, "forget").await?;
    let change = match spec.dedupe {
        Dedupe::Open => (!forgets).then_some(FORGET),
        Dedupe::Window(_) => forgets.then_some(REMEMBER),
    };
    if let Some(file) = change {
        sqlx::raw_sql(outbox.sql(file)).execute(&mut *connection).await?;
    }
    register_outbox(connection, spec).await
}

/// Records the outbox, its version and its lanes.
async fn register_outbox(connection: &mut MySqlConnection, spec: &OutboxSpec) -> Result<()> {
    let outbox = &spec.outbox;
    // Not ON DUPLICATE KEY UPDATE: it would alter the outbox that has the same table.
    let update = "UPDATE postrider_outboxes SET table_name = ?, version = ? WHERE name = ?";
    let known = sqlx::query(update)
        .bind(outbox.table())
        .bind(versions::SCHEMA)
        .bind(outbox.name())
        .execute(&mut *connection)
        .await?;
    if known.rows_affected() == 0 {
        sqlx::query(
            "INSERT INTO postrider_outboxes (table_name, version, name, claim) VALUES (?, ?, ?, ?)",
        )
        .bind(outbox.table())
        .bind(versions::SCHEMA)
        .bind(outbox.name())
        .bind(spec.claim.as_str())
        .execute(&mut *connection)
        .await?;
    }
    let lanes = format!(
        "INSERT INTO postrider_lanes (outbox, lane) VALUES {} ON DUPLICATE KEY UPDATE lane = lane",
        lane_rows(outbox)
    );
    sqlx::raw_sql(AssertSqlSafe(lanes)).execute(&mut *connection).await?;
    Ok(())
}

/// Returns the lanes of an outbox as VALUES. Its name is a validated identifier.
fn lane_rows(outbox: &Outbox) -> String {
    let row = |lane| format!("('{}', {lane})", outbox.name());
    (0..LANES).map(row).collect::<Vec<_>>().join(", ")
}

async fn has_column(connection: &mut MySqlConnection, table: &str, column: &str) -> Result<bool> {
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.COLUMNS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = ?",
    )
    .bind(table)
    .bind(column)
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}

/// Returns whether event ids are generated by `UUID()` alone.
async fn has_clock_in_event_id(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<bool> {
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.COLUMNS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'event_id'
             AND COLUMN_DEFAULT = 'uuid()'",
    )
    .bind(outbox.table())
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}

/// Returns whether the archive holds each id only once.
async fn archives_ids_once(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<bool> {
    let columns: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.STATISTICS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND INDEX_NAME = 'PRIMARY'",
    )
    .bind(format!("{}_archive", outbox.table()))
    .fetch_one(connection)
    .await?;
    Ok(columns == 1)
}

async fn has_dlq_indexes(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<bool> {
    let table = format!("{}_dlq", outbox.table());
    let found: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
    )
    .bind(&table)
    .fetch_all(connection)
    .await?;
    let has = |end: &str| found.iter().any(|name| *name == format!("{table}_{end}"));
    Ok(["kind", "groups", "event", "identity"].into_iter().all(has) && !has("original"))
}

async fn has_checks(connection: &mut MySqlConnection, outbox: &Outbox) -> Result<bool> {
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.TABLE_CONSTRAINTS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND CONSTRAINT_NAME = ?",
    )
    .bind(outbox.table())
    .bind(format!("{}_ck_state", outbox.table()))
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}

async fn has_trigger(
    connection: &mut MySqlConnection,
    outbox: &Outbox,
    suffix: &str,
) -> Result<bool> {
    // Searches by schema and name of the table: a search by those of the trigger opens every table
    // of every database of the server.
    let found: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.TRIGGERS
         WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ? AND TRIGGER_NAME = ?",
    )
    .bind(outbox.table())
    .bind(format!("{}_{suffix}", outbox.table()))
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}
