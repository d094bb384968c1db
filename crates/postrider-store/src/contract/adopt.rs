//! Tables of other programs that an outbox serves.

use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;

use super::{Finding, Result};
use crate::OutboxSpec;
use crate::adopt::Adoption;

/// The position at which an import of older rows continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptCursor {
    /// Rows of the table, after this id.
    Rows(Option<String>),
    /// Rows of its dead-letter table, after this id.
    Letters(i64),
}

impl AdoptCursor {
    /// The beginning of an import.
    pub const START: Self = Self::Rows(None);
}

/// The result of one import step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptStep {
    /// Number of rows read.
    pub seen: u64,
    /// Number of rows that became events or dead letters; in a dry run, that would have become so.
    pub taken: u64,
    /// Where the next step continues; `None` at the end.
    pub next: Option<AdoptCursor>,
}

/// Adopted tables. [`Schema::migrate`](super::Schema::migrate) creates their triggers.
#[async_trait]
pub trait Adopt: Send + Sync {
    /// Returns the SQL that a migration runs to adopt tables, with the grants that it needs.
    /// Inspects the tables, because the lengths and types of their columns are part of the SQL.
    async fn adoption_sql(&self, outboxes: &[OutboxSpec]) -> Result<String>;

    /// Checks whether the triggers that keep adopted tables and their outboxes in step exist.
    async fn diagnose_adoptions(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>>;

    /// Returns how many rows an import would read.
    async fn adoptable(&self, outbox: &Outbox, adoption: &Adoption) -> Result<u64>;

    /// Runs one step of importing the rows that the table had before: at most `rows_max` rows after
    /// the cursor, in one transaction. Rows that are in the outbox already are skipped, so an
    /// import that was interrupted, or whose result was lost, can be started again.
    async fn adopt_step(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        cursor: &AdoptCursor,
        import: &AdoptImport<'_>,
    ) -> Result<AdoptStep>;

    /// Returns how many rows [`clean_adopted`](Self::clean_adopted) would delete.
    async fn expired_rows(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        age: Duration,
    ) -> Result<u64>;

    /// Deletes rows that were marked as delivered longer ago than `age`, in bounded chunks.
    async fn clean_adopted(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        age: Duration,
        chunk: u32,
    ) -> Result<u64>;
}

/// The settings of an import.
#[derive(Debug, Clone, Copy)]
pub struct AdoptImport<'a> {
    /// Name of the operator, for the audit trail.
    pub operator: &'a str,
    /// Rows per step.
    pub rows_max: u32,
    /// Whether to only count.
    pub dry_run: bool,
}

/// Returns the finding of `doctor` about event ids that another database may have as well.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn shared_identities(outbox: &Outbox, adoption: &Adoption) -> Finding {
    Finding::warning(
        format!("identities of adopted table {}", adoption.table),
        format!(
            "are made of the row ids and the name of outbox `{}` alone: events of another database \
             with an outbox of this name have the same ones, and a receiver of both takes them for \
             repeats",
            outbox.name()
        ),
        "if there is such a database: when the outbox is empty, put 8 and 4 other hexadecimal \
         digits into `prefix` in postrider_adopted_ids, and run `postrider migrate`",
    )
}

/// Returns the findings of `doctor` about one adoption, given the `wanted` triggers (suffixes of
/// names, tables), or the reason why the mapping does not fit.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn adoption_findings(
    outbox: &Outbox,
    adoption: &Adoption,
    wanted: Result<Vec<(&'static str, String)>, &crate::StoreError>,
    there: impl Fn(&str, &str) -> bool,
) -> Vec<Finding> {
    let subject = format!("adopted table {}", adoption.table);
    let fix = "if a column was renamed, name it in [outbox.adopt.columns]; then run `postrider \
               migrate`, and `postrider outbox adopt` for what was inserted meanwhile";
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return vec![Finding::error(subject, error.to_string(), fix)],
    };
    let mut findings = Vec::new();
    for (end, table) in &wanted {
        let name = format!("{}_{end}", outbox.table());
        if !there(&name, table) {
            findings.push(Finding::error(
                format!("trigger {name} on {table}"),
                format!(
                    "is missing or disabled: outbox `{}` and table `{}` are out of step",
                    outbox.name(),
                    adoption.table
                ),
                fix,
            ));
        }
    }
    if findings.is_empty() {
        let found = format!("all {} triggers that serve it are there", wanted.len());
        findings.push(Finding::ok(subject, found));
    }
    findings
}
