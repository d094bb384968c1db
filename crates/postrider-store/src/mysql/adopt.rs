//! Adopted tables: their triggers, created by a migration, and the import of their rows.

use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use postrider::internal::millis;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection};

use super::MysqlStore;
use super::adopt_columns::columns;
use super::adopt_dialect::Mysql;
use super::adopt_identity::{forget_prefix, is_adopted, keep_prefix, prefix};
use super::adopt_import::{import_letters, import_rows};
use super::adopt_letters::{end_letters, forget_letters, mark_letters};
use super::adopt_rules::check_rules;
use super::server::Server;
use crate::adopt::{
    Adoption, Clauses, Field, Fitted, Kind, columns_and_values, is_offset, prefix_of_name, trigger,
};
use crate::columns::sql;
use crate::contract::{
    Adopt, AdoptCursor, AdoptImport, AdoptStep, Finding, Maintenance, Result, adoption_findings,
    shared_identities,
};
use crate::operator::audit;
use crate::{OutboxSpec, Status, StoreError};

/// One import at a time. Lock names are global to the server, and short.
const IMPORT_LOCK: &str =
    "SELECT GET_LOCK(CONCAT('postrider_', /*M! MD5(CONCAT(DATABASE(), '/adopt')) */
        /*!80000 LEFT(SHA2(CONCAT(DATABASE(), '/adopt'), 256), 32) */), 30)";

#[async_trait]
impl Adopt for MysqlStore {
    async fn adoption_sql(&self, outboxes: &[OutboxSpec]) -> Result<String> {
        let server = self.server().await?;
        let mut connection = self.pool.acquire().await?;
        let mut text = String::new();
        for (spec, adoption) in adopting(outboxes) {
            let fitted = fit(&mut connection, server, adoption).await?;
            let prefix = prefix(&mut connection, &spec.outbox).await?;
            text.push_str(sql!("sql/adopt.sql", "adopt_outbox"));
            text.push_str(&keep_prefix(&spec.outbox, &prefix));
            let AssertSqlSafe(index) = spec.outbox.sql(sql!("sql/adopt.sql", "adopt_index"));
            text.push_str(&format!(
                "\n{index}\n{}",
                mark_letters(spec, adoption).unwrap_or_default()
            ));
            for made in triggers(&clauses(&fitted, &spec.outbox, prefix), server) {
                // The body contains semicolons; these lines are for the command-line client.
                let steps = made.steps(server, &spec.outbox).join(";\n");
                text.push_str(&format!("\nDELIMITER //\n{steps}//\nDELIMITER ;\n"));
            }
            let letters = adoption.dead_letters.as_ref().map(|letters| {
                format!("\n--   GRANT SELECT, INSERT, UPDATE ON `{}` TO owner;", letters.table)
            });
            let rights = sql!("sql/adopt.sql", "adopt_grants")
                .replace("{adopted}", &adoption.table)
                .replace("{letters}", &letters.unwrap_or_default());
            text.push_str(&format!("\n{rights}"));
        }
        Ok(server.plain(&text))
    }

    async fn diagnose_adoptions(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>> {
        let server = self.server().await?;
        let mut connection = self.pool.acquire().await?;
        let mut findings = Vec::new();
        for (spec, adoption) in adopting(outboxes) {
            let fitted = fit(&mut connection, server, adoption).await;
            let prefix = prefix(&mut connection, &spec.outbox).await?;
            let wanted = fitted.as_ref().map(|fitted| {
                let made = triggers(&clauses(fitted, &spec.outbox, prefix.clone()), server);
                made.into_iter().map(|made| (made.end, made.table)).collect::<Vec<_>>()
            });
            let mut there = Vec::new();
            for (end, table) in wanted.as_ref().into_iter().flatten() {
                let name = format!("{}_{end}", spec.outbox.table());
                if found(&mut connection, &name, table).await?.is_some() {
                    there.push(name);
                }
            }
            let there = |name: &str, _: &str| there.iter().any(|known| known == name);
            findings.extend(adoption_findings(&spec.outbox, adoption, wanted, there));
            let by_name = prefix == prefix_of_name(&spec.outbox);
            if by_name && fitted.is_ok_and(|fitted| !fitted.has_uuid()) {
                findings.push(shared_identities(&spec.outbox, adoption));
            }
        }
        Ok(findings)
    }

    async fn adoptable(&self, _outbox: &Outbox, adoption: &Adoption) -> Result<u64> {
        let mut connection = self.pool.acquire().await?;
        let letters = adoption.dead_letters.as_ref().map(|letters| letters.table.as_str());
        let mut rows = 0;
        for table in [Some(adoption.table.as_str()), letters].into_iter().flatten() {
            let count = format!("SELECT COUNT(*) FROM `{table}`");
            let count: i64 =
                sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut *connection).await?;
            rows += u64::try_from(count).unwrap_or(0);
        }
        Ok(rows)
    }

    async fn adopt_step(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        cursor: &AdoptCursor,
        import: &AdoptImport<'_>,
    ) -> Result<AdoptStep> {
        let mut connection = self.pool.acquire().await?;
        // Closing the connection releases the lock and the variable on every path.
        connection.close_on_drop();
        // A second import waits here, and then finds the rows that the first has imported.
        let locked: Option<i64> =
            sqlx::query_scalar(IMPORT_LOCK).fetch_one(&mut *connection).await?;
        if locked != Some(1) {
            return Err(StoreError::Refused(
                "another import of an adopted table has been at work for 30 seconds; begin again \
                 when it has ended"
                    .to_owned(),
            ));
        }
        sqlx::raw_sql("SET @postrider_adopting = 1").execute(&mut *connection).await?;
        let fitted = fit(&mut connection, self.server().await?, adoption).await?;
        let prefix = prefix(&mut connection, outbox).await?;
        let clauses = clauses(&fitted, outbox, prefix);
        let mut tx = connection.begin().await?;
        let (step, target) = match cursor {
            AdoptCursor::Rows(after) => {
                let step =
                    import_rows(&mut tx, &clauses, after.as_deref(), import.rows_max).await?;
                (step, &adoption.table)
            }
            AdoptCursor::Letters(after) => {
                let step = import_letters(&mut tx, &clauses, *after, import.rows_max).await?;
                let letters = adoption.dead_letters.as_ref();
                (step, letters.map_or(&adoption.table, |letters| &letters.table))
            }
        };
        if import.dry_run {
            tx.rollback().await?;
            return Ok(step);
        }
        if step.taken > 0 {
            let taken = format!("{} taken", step.taken);
            audit(&mut *tx, import.operator, "outbox.adopt", outbox.name(), target, &taken).await?;
        }
        tx.commit().await?;
        if matches!(cursor, AdoptCursor::Letters(_)) {
            self.fingerprint_dead_letters(outbox, import.rows_max).await?;
        }
        Ok(step)
    }

    async fn expired_rows(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        age: Duration,
    ) -> Result<u64> {
        let Some(sql) =
            self.on_delivered(outbox, adoption, sql!("sql/adopt.sql", "adopt_expired")).await?
        else {
            return Ok(0);
        };
        let rows: i64 =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(millis(age)).fetch_one(&self.pool).await?;
        Ok(u64::try_from(rows).unwrap_or(0))
    }

    async fn clean_adopted(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        age: Duration,
        chunk: u32,
    ) -> Result<u64> {
        let sql = sql!("sql/adopt.sql", "adopt_clean");
        let Some(sql) = self.on_delivered(outbox, adoption, sql).await? else { return Ok(0) };
        let mut removed = 0;
        loop {
            let step = sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(millis(age))
                .bind(chunk)
                .execute(&self.pool)
                .await?
                .rows_affected();
            removed += step;
            if step < u64::from(chunk) {
                return Ok(removed);
            }
        }
    }
}

impl MysqlStore {
    /// Returns a statement about rows that are marked as delivered; `None` if they are not kept.
    async fn on_delivered(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        template: &str,
    ) -> Result<Option<String>> {
        let Some(time) = adoption.delivered_time().filter(|_| adoption.marks()) else {
            return Ok(None);
        };
        let server = self.server().await?;
        let fitted = fit(&mut *self.pool.acquire().await?, server, adoption).await?;
        // The row's own columns are enough: no event id is needed.
        let clauses = clauses(&fitted, outbox, String::new());
        let pieces = [
            ("adopted", adoption.table.clone()),
            ("id", clauses.id()),
            ("delivered", clauses.delivered("f.")),
            ("at", clauses.time("f.", &fitted.columns[&time])),
        ];
        Ok(Some(clauses.fill(template, &pieces)))
    }
}

/// Returns the outboxes with an adopted table.
fn adopting(outboxes: &[OutboxSpec]) -> impl Iterator<Item = (&OutboxSpec, &Adoption)> {
    outboxes.iter().filter_map(|spec| Some((spec, spec.adoption.as_ref()?)))
}

fn clauses<'a>(fitted: &'a Fitted<'a>, outbox: &'a Outbox, prefix: String) -> Clauses<'a, Mysql> {
    Clauses { fitted, outbox, prefix, dialect: Mysql::new(&fitted.adoption.time_zone) }
}

/// Creates or updates the triggers that keep an adopted table and its outbox in step. Returns the
/// changes made.
pub(super) async fn set_up(
    connection: &mut MySqlConnection,
    server: Server,
    spec: &OutboxSpec,
    adoption: &Adoption,
) -> Result<Vec<String>> {
    let fitted = fit(connection, server, adoption).await?;
    let prefix = prefix(connection, &spec.outbox).await?;
    sqlx::raw_sql(sql!("sql/adopt.sql", "adopt_outbox")).execute(&mut *connection).await?;
    // Before the index, whose existence shows that the outbox has an adopted table.
    sqlx::raw_sql(AssertSqlSafe(keep_prefix(&spec.outbox, &prefix)))
        .execute(&mut *connection)
        .await?;
    let AssertSqlSafe(index) = spec.outbox.sql(sql!("sql/adopt.sql", "adopt_index"));
    server.create(connection, &index).await?;
    let letters = adoption.dead_letters.as_ref().map(|letters| letters.table.as_str());
    end_letters(connection, &spec.outbox, letters).await?;
    if let Some(mark) = mark_letters(spec, adoption) {
        sqlx::raw_sql(AssertSqlSafe(mark)).execute(&mut *connection).await?;
    }
    let made = triggers(&clauses(&fitted, &spec.outbox, prefix), server);
    for end in trigger::ALL.into_iter().filter(|end| !made.iter().any(|made| made.end == *end)) {
        // The new mapping writes fewer fields back than the previous one.
        let drop = format!("DROP TRIGGER IF EXISTS `{}_{end}`", spec.outbox.table());
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
    }
    for made in made {
        // Changed only if necessary: a change waits for every open transaction on the table, and
        // all writers wait behind it.
        let name = format!("{}_{}", spec.outbox.table(), made.end);
        let known = found(connection, &name, &made.table).await?;
        let wanted = (made.body().to_owned(), made.is_strict());
        if known.as_ref().is_some_and(|known| *known == wanted) {
            continue;
        }
        if known.is_none() {
            // It may be on the previously adopted table.
            let drop = format!("DROP TRIGGER IF EXISTS `{name}`");
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
        }
        made.put_in_place(connection, server, &spec.outbox).await?;
    }
    let mut done = fitted.notes;
    done.push(format!("outbox {} serves table {}", spec.outbox.name(), adoption.table));
    Ok(done)
}

/// Ends an adoption. Returns the changes made, usually none.
pub(super) async fn remove(
    connection: &mut MySqlConnection,
    server: Server,
    outbox: &Outbox,
) -> Result<Vec<String>> {
    if !is_adopted(connection, outbox).await? {
        return Ok(Vec::new());
    }
    end_letters(connection, outbox, None).await?;
    let AssertSqlSafe(end) = outbox.sql(sql!("sql/adopt.sql", "adopt_remove"));
    server.create(connection, &end).await?;
    Ok(vec![format!("outbox {} serves no table of others any more", outbox.name())])
}

/// Ends an adoption when its outbox is dropped.
pub(super) async fn forget(
    connection: &mut MySqlConnection,
    server: Server,
    outbox: &Outbox,
) -> Result<()> {
    remove(connection, server, outbox).await?;
    forget_prefix(connection, outbox).await?;
    forget_letters(connection, outbox).await
}

/// Returns the body of a trigger and whether it is strict, if it exists.
async fn found(
    connection: &mut MySqlConnection,
    name: &str,
    table: &str,
) -> Result<Option<(String, bool)>> {
    // Searches by schema and name of the table: a search by those of the trigger opens every table.
    let found: Option<(String, bool)> = sqlx::query_as(
        "SELECT ACTION_STATEMENT, SQL_MODE LIKE '%STRICT%' FROM information_schema.TRIGGERS
         WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ? AND TRIGGER_NAME = ?",
    )
    .bind(table)
    .bind(name)
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|(body, is_strict)| (body.trim().to_owned(), is_strict)))
}

/// Checks a mapping against the existing tables.
async fn fit<'a>(
    connection: &mut MySqlConnection,
    server: Server,
    adoption: &'a Adoption,
) -> Result<Fitted<'a>> {
    let zone = adoption.time_zone.as_str();
    let known: bool = match is_offset(zone) {
        true => {
            sqlx::query_scalar("SELECT CONVERT_TZ('2020-01-01', '+00:00', ?) IS NOT NULL")
                .bind(zone)
                .fetch_one(&mut *connection)
                .await?
        }
        false => zone == "UTC",
    };
    if !known {
        return Err(StoreError::Schema(format!(
            "time_zone = \"{zone}\" in [outbox.adopt]: {} takes \"UTC\" or an offset such as \
             \"+09:00\"; names need tables that a server may not have",
            server.name()
        )));
    }
    let table = columns(&mut *connection, &adoption.table).await?;
    let letters = match &adoption.dead_letters {
        Some(letters) => columns(&mut *connection, &letters.table).await?,
        None => Vec::new(),
    };
    let fitted = Fitted::new(adoption, table, letters)?;
    check_rules(connection, &fitted).await?;
    Ok(fitted)
}

/// A trigger of an adoption.
struct Made {
    end: &'static str,
    table: String,
    sql: String,
}

impl Made {
    /// Returns the body as the server shows it.
    fn body(&self) -> &str {
        self.sql.split_once("FOR EACH ROW").map_or("", |(_, body)| body.trim())
    }

    /// Returns whether an invalid value is an error in it.
    fn is_strict(&self) -> bool {
        self.end == trigger::APPEND
    }

    /// Creates it in the place of an older one.
    async fn put_in_place(
        &self,
        connection: &mut MySqlConnection,
        server: Server,
        outbox: &Outbox,
    ) -> Result<()> {
        for step in self.steps(server, outbox) {
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(step)).execute(&mut *connection).await {
                // The session goes back to its pool: a lock that it kept would stop all writers.
                sqlx::raw_sql("UNLOCK TABLES").execute(connection).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Returns what creates it in the place of an older one. MySQL cannot do that in one statement:
    /// there, the table is locked meanwhile, so that no row is inserted without the trigger.
    fn steps(&self, server: Server, outbox: &Outbox) -> Vec<String> {
        let mode = match self.is_strict() {
            true => ", SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
            false => ", SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'",
        };
        match server {
            Server::MariaDb => vec![self.sql.clone()],
            Server::MySql => vec![
                format!("SET @postrider_mode = @@SESSION.sql_mode{mode}"),
                format!("LOCK TABLES `{}` WRITE", self.table),
                format!("DROP TRIGGER IF EXISTS `{}_{}`", outbox.table(), self.end),
                self.sql.clone(),
                "UNLOCK TABLES".to_owned(),
                "SET SESSION sql_mode = @postrider_mode".to_owned(),
            ],
        }
    }
}

/// Builds the triggers. The one on inserts comes last: before it, no event has a row to be written
/// back to. Triggers that write to the adopted tables are not strict: a character that a column's
/// character set lacks, or a number that is too large for it, must not fail a settle. (`CONVERT …
/// USING` would: error 1977.)
fn triggers(clauses: &Clauses<'_, Mysql>, server: Server) -> Vec<Made> {
    let (outbox, adoption) = (clauses.outbox.table(), clauses.fitted.adoption);
    let letters = format!("{outbox}_dlq");
    let identities = ("identities", clauses.identities());
    let mut made = Vec::new();
    let mut add = |end, table: &str, template: &str, pieces: &[(&str, String)]| {
        let sql = server.plain(&clauses.fill(template, pieces));
        made.push(Made { end, table: table.to_owned(), sql });
    };
    if let Some(show) = clauses.show_state() {
        let pieces = [
            ("changed", clauses.changed()),
            ("adopted", adoption.table.clone()),
            ("id", clauses.id()),
            ("row", clauses.row_of("NEW.event_id")),
            identities.clone(),
            ("show", show),
        ];
        add(trigger::STATE, outbox, sql!("sql/adopt.sql", "adopt_state"), &pieces);
    }
    let pieces = [identities.clone(), ("show", clauses.show_death())];
    add(trigger::DEAD, &letters, sql!("sql/adopt.sql", "adopt_dead"), &pieces);
    let pieces = [identities.clone(), ("show", clauses.show_resolution())];
    add(trigger::RESOLVED, &letters, sql!("sql/adopt.sql", "adopt_resolved"), &pieces);
    let pieces = [identities, ("show", clauses.show_delivery())];
    add(trigger::GONE, outbox, sql!("sql/adopt.sql", "adopt_gone"), &pieces);
    let check = match clauses.fitted.columns[&Field::Id].kind {
        Kind::Text => sql!("sql/adopt.sql", "adopt_check").trim_end(),
        _ => "",
    };
    let (columns, values) = columns_and_values(&clauses.event("NEW."));
    let pieces = [
        ("check", check.to_owned()),
        ("adopted", adoption.table.clone()),
        ("id", clauses.id()),
        ("due", clauses.due("NEW.", &[Status::Pending, Status::Failed])),
        ("columns", columns),
        ("values", values),
    ];
    add(trigger::APPEND, &adoption.table, sql!("sql/adopt.sql", "adopt_append"), &pieces);
    made
}
