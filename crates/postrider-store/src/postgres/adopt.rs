//! Adopted tables: their triggers, created by a migration, and the import of their rows.

use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;
use postrider::internal::millis;
use sqlx::{AssertSqlSafe, PgConnection};

use super::PostgresStore;
use super::adopt_columns::columns;
use super::adopt_dialect::Postgres;
use super::adopt_identity::{forget_prefix, is_adopted, keep_prefix, prefix};
use super::adopt_import::{import_letters, import_rows};
use super::adopt_letters::{end_letters, forget_letters, mark_letters};
use super::adopt_rules::check_rules;
use crate::adopt::{
    Adoption, Clauses, Field, Fitted, Kind, LetterField, columns_and_values, is_offset,
    prefix_of_name, trigger,
};
use crate::columns::sql;
use crate::contract::{
    Adopt, AdoptCursor, AdoptImport, AdoptStep, Finding, Maintenance, Result, adoption_findings,
    shared_identities,
};
use crate::operator::audit;
use crate::{OutboxSpec, Status, StoreError};

/// One import at a time; the number is arbitrary and used for nothing else.
const IMPORT_LOCK: i64 = 0x706f_7374_6164;

#[async_trait]
impl Adopt for PostgresStore {
    async fn adoption_sql(&self, outboxes: &[OutboxSpec]) -> Result<String> {
        let mut connection = self.pool.acquire().await?;
        let mut text = String::new();
        for (spec, adoption) in adopting(outboxes) {
            let fitted = fit(&mut connection, adoption).await?;
            let prefix = prefix(&mut connection, &spec.outbox).await?;
            let keep = keep_prefix(&spec.outbox, &prefix);
            let made = parts(&clauses(&fitted, &spec.outbox, prefix));
            let letters = adoption.dead_letters.as_ref().map(|letters| {
                format!("\n--   GRANT SELECT, INSERT, UPDATE ON \"{}\" TO owner;", letters.table)
            });
            let rights = sql!("sql/adopt.sql", "adopt_grants")
                .replace("{adopted}", &adoption.table)
                .replace("{letters}", &letters.unwrap_or_default());
            let mark = mark_letters(spec, adoption);
            for part in [made.shared, keep, made.append_trigger, mark, rights] {
                text.push('\n');
                text.push_str(&part);
            }
        }
        Ok(text)
    }

    async fn diagnose_adoptions(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>> {
        let mut connection = self.pool.acquire().await?;
        let mut findings = Vec::new();
        for (spec, adoption) in adopting(outboxes) {
            let fitted = fit(&mut connection, adoption).await;
            let prefix = prefix(&mut connection, &spec.outbox).await?;
            let wanted = fitted
                .as_ref()
                .map(|fitted| parts(&clauses(fitted, &spec.outbox, prefix.clone())).names);
            let found: Vec<(String, String)> = sqlx::query_as(
                "SELECT tgname::text, tgrelid::regclass::text FROM pg_trigger
                 WHERE NOT tgisinternal AND tgenabled <> 'D' AND pg_table_is_visible(tgrelid)",
            )
            .fetch_all(&mut *connection)
            .await?;
            let there = |name: &str, table: &str| {
                found.iter().any(|(trigger, of)| trigger == name && of.trim_matches('"') == table)
            };
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
            let count = format!("SELECT count(*) FROM \"{table}\"");
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
        let mut tx = self.begin().await?;
        // A second import waits here, and then finds the rows that the first has imported.
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(IMPORT_LOCK).execute(&mut *tx).await?;
        sqlx::raw_sql("SET LOCAL postrider.adopting = 'on'").execute(&mut *tx).await?;
        let fitted = fit(&mut tx, adoption).await?;
        let prefix = prefix(&mut tx, outbox).await?;
        let clauses = clauses(&fitted, outbox, prefix);
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
                .bind(i64::from(chunk))
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

impl PostgresStore {
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
        let fitted = fit(&mut *self.pool.acquire().await?, adoption).await?;
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

fn clauses<'a>(
    fitted: &'a Fitted<'a>,
    outbox: &'a Outbox,
    prefix: String,
) -> Clauses<'a, Postgres> {
    Clauses { fitted, outbox, prefix, dialect: Postgres::new(&fitted.adoption.time_zone) }
}

/// Returns the tables on which the outbox has its trigger.
async fn served_tables(connection: &mut PgConnection, outbox: &Outbox) -> Result<Vec<String>> {
    let on = sqlx::query_scalar(
        "SELECT tgrelid::regclass::text FROM pg_trigger
         WHERE tgname = $1 AND tgenabled <> 'D' AND pg_table_is_visible(tgrelid)",
    );
    let name = format!("{}_{}", outbox.table(), trigger::APPEND);
    Ok(on.bind(name).fetch_all(connection).await?)
}

/// Locks the adopted tables whose trigger a migration creates or drops, before any table of the
/// outboxes. A writer locks its table first and then the outbox: in the other order it could lose a
/// deadlock against the migration.
pub(super) async fn lock_tables(
    connection: &mut PgConnection,
    outboxes: &[OutboxSpec],
) -> Result<()> {
    for spec in outboxes {
        let wanted = spec.adoption.as_ref().map(|adoption| adoption.table.as_str());
        let on = served_tables(connection, &spec.outbox).await?;
        let is_wanted = |table: &String| Some(table.trim_matches('"')) == wanted;
        for table in on.iter().filter(|table| !is_wanted(table)) {
            let lock = format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
            sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *connection).await?;
        }
        let Some(table) = wanted.filter(|_| !on.iter().any(is_wanted)) else { continue };
        let there = sqlx::query_scalar("SELECT to_regclass(quote_ident($1)) IS NOT NULL");
        if there.bind(table).fetch_one(&mut *connection).await? {
            let lock = format!("LOCK TABLE \"{table}\" IN SHARE ROW EXCLUSIVE MODE");
            sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Creates or updates the triggers that keep an adopted table and its outbox in step. Returns the
/// changes made.
pub(super) async fn set_up(
    connection: &mut PgConnection,
    spec: &OutboxSpec,
    adoption: &Adoption,
) -> Result<Vec<String>> {
    let fitted = fit(connection, adoption).await?;
    let prefix = prefix(connection, &spec.outbox).await?;
    let keep = keep_prefix(&spec.outbox, &prefix);
    let made = parts(&clauses(&fitted, &spec.outbox, prefix));
    for name in
        trigger::ALL.into_iter().filter(|name| !made.names.iter().any(|(end, _)| end == name))
    {
        // The new mapping writes fewer fields back than the previous one.
        let drop = format!("DROP FUNCTION IF EXISTS \"{}_{name}\"() CASCADE", spec.outbox.table());
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
    }
    sqlx::raw_sql(AssertSqlSafe(made.shared)).execute(&mut *connection).await?;
    sqlx::raw_sql(AssertSqlSafe(keep)).execute(&mut *connection).await?;
    let letters = adoption.dead_letters.as_ref().map(|letters| letters.table.as_str());
    end_letters(connection, &spec.outbox, letters).await?;
    sqlx::raw_sql(AssertSqlSafe(mark_letters(spec, adoption))).execute(&mut *connection).await?;
    // Changed only if necessary: a change waits for every open transaction on the table, and all
    // writers wait behind it.
    let on = served_tables(connection, &spec.outbox).await?;
    for other in on.iter().filter(|table| table.trim_matches('"') != adoption.table) {
        let drop =
            format!("DROP TRIGGER \"{}_{}\" ON {other}", spec.outbox.table(), trigger::APPEND);
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
    }
    if !on.iter().any(|table| table.trim_matches('"') == adoption.table) {
        sqlx::raw_sql(AssertSqlSafe(made.append_trigger)).execute(&mut *connection).await?;
    }
    let mut done = fitted.notes;
    done.push(format!("outbox {} serves table {}", spec.outbox.name(), adoption.table));
    Ok(done)
}

/// Ends an adoption. Returns the changes made, usually none.
pub(super) async fn remove(connection: &mut PgConnection, outbox: &Outbox) -> Result<Vec<String>> {
    if !is_adopted(connection, outbox).await? {
        return Ok(Vec::new());
    }
    end_letters(connection, outbox, None).await?;
    sqlx::raw_sql(outbox.sql(sql!("sql/adopt.sql", "adopt_remove"))).execute(connection).await?;
    Ok(vec![format!("outbox {} serves no table of others any more", outbox.name())])
}

/// Ends an adoption when its outbox is dropped.
pub(super) async fn forget(connection: &mut PgConnection, outbox: &Outbox) -> Result<()> {
    remove(connection, outbox).await?;
    forget_prefix(connection, outbox).await?;
    forget_letters(connection, outbox).await
}

/// Checks a mapping against the existing tables.
async fn fit<'a>(connection: &mut PgConnection, adoption: &'a Adoption) -> Result<Fitted<'a>> {
    if !is_offset(&adoption.time_zone) {
        // Not with pg_timezone_names, which reads a folder of files: 100 ms.
        let tried = sqlx::query("SELECT now() AT TIME ZONE $1").bind(&adoption.time_zone);
        if let Err(error) = tried.execute(&mut *connection).await {
            return Err(match error.as_database_error().and_then(|error| error.code()) {
                Some(code) if code == "22023" => StoreError::Schema(format!(
                    "time_zone = \"{}\" in [outbox.adopt] is unknown to this server; use a name \
                     such as \"Asia/Seoul\", or an offset such as \"+09:00\"",
                    adoption.time_zone
                )),
                _ => error.into(),
            });
        }
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

/// The SQL of a migration for one adoption.
struct Parts {
    /// Functions, and triggers on the outbox's own tables.
    shared: String,
    /// The trigger on the adopted table.
    append_trigger: String,
    /// Suffixes of the triggers' names, and the tables they are on.
    names: Vec<(&'static str, String)>,
}

fn parts(clauses: &Clauses<'_, Postgres>) -> Parts {
    let (outbox, adoption) = (clauses.outbox.table(), clauses.fitted.adoption);
    let mut shared = clauses.fill(sql!("sql/adopt.sql", "adopt_outbox"), &[]);
    let mut names = vec![(trigger::APPEND, adoption.table.clone())];
    let mut add = |template: &str, pieces: &[(&str, String)]| {
        shared.push('\n');
        shared.push_str(&clauses.fill(template, pieces));
    };
    if clauses.fitted.columns.contains_key(&Field::Headers)
        || clauses.fitted.letters.contains_key(&LetterField::Headers)
    {
        add(sql!("sql/adopt.sql", "adopt_headers"), &[]);
    }
    let check = match clauses.fitted.columns[&Field::Id].kind {
        Kind::Text => sql!("sql/adopt.sql", "adopt_check").trim_end(),
        _ => "",
    };
    let (columns, values) = columns_and_values(&clauses.event("f."));
    let pieces = [
        ("check", check.to_owned()),
        ("name", clauses.outbox.name().to_owned()),
        ("columns", columns),
        ("values", values),
        ("due", clauses.due("f.", &[Status::Pending, Status::Failed])),
        ("id", clauses.id()),
    ];
    add(sql!("sql/adopt.sql", "adopt_append"), &pieces);
    let identities = ("identities", clauses.identities());
    if let Some(show) = clauses.show_state() {
        let pieces = [
            ("changed", clauses.changed()),
            ("adopted", adoption.table.clone()),
            ("id", clauses.id()),
            ("row", clauses.row_of("NEW.event_id")),
            identities.clone(),
            ("show", show),
        ];
        add(sql!("sql/adopt.sql", "adopt_state"), &pieces);
        names.push((trigger::STATE, outbox.to_owned()));
    }
    let pieces = [identities.clone(), ("show", clauses.show_delivery())];
    add(sql!("sql/adopt.sql", "adopt_gone"), &pieces);
    names.push((trigger::GONE, outbox.to_owned()));
    add(sql!("sql/adopt.sql", "adopt_dead"), &[identities.clone(), ("show", clauses.show_death())]);
    names.push((trigger::DEAD, format!("{outbox}_dlq")));
    let pieces = [identities, ("show", clauses.show_resolution())];
    add(sql!("sql/adopt.sql", "adopt_resolved"), &pieces);
    names.push((trigger::RESOLVED, format!("{outbox}_dlq")));
    let pieces = [("adopted", adoption.table.clone())];
    let append_trigger = clauses.fill(sql!("sql/adopt.sql", "adopt_append_trigger"), &pieces);
    Parts { shared, append_trigger, names }
}
