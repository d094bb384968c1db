//! Tables of other programs that an outbox serves.

use std::time::Duration;

use async_trait::async_trait;

use super::{Finding, Result};
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::StoreError;
use crate::adopt::Adoption;
use crate::{Outbox, OutboxSpec};

/// Where an import of what was there before the adoption goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptCursor {
    /// Rows of the table, after this id.
    Rows(Option<String>),
    /// Rows of its dead-letter table, after this id.
    Letters(i64),
}

impl AdoptCursor {
    /// The beginning.
    pub const START: Self = Self::Rows(None);
}

/// What one step of an import did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptStep {
    /// Rows looked at.
    pub seen: u64,
    /// Rows that are events, or dead letters, from now on; in a dry run, that would be.
    pub taken: u64,
    /// Where to go on; `None` at the end.
    pub next: Option<AdoptCursor>,
}

/// Adopted tables. [`Schema::migrate`](super::Schema::migrate) makes their triggers.
#[async_trait]
pub trait Adopt: Send + Sync {
    /// The SQL that a migration runs to adopt tables, with the rights that it needs. Looks at the
    /// tables: lengths and types of their columns are part of it.
    async fn adoption_sql(&self, outboxes: &[OutboxSpec]) -> Result<String>;

    /// Whether what keeps adopted tables and their outboxes in step is there.
    async fn diagnose_adoptions(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>>;

    /// How many rows an import looks at.
    async fn adoptable(&self, outbox: &Outbox, adoption: &Adoption) -> Result<u64>;

    /// One step of the import of what the table had before: at most `rows_max` rows after the
    /// cursor, in one transaction. What is in the outbox already is left out, so that an import
    /// that was interrupted, or whose answer was lost, is begun again.
    async fn adopt_step(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        cursor: &AdoptCursor,
        import: &AdoptImport<'_>,
    ) -> Result<AdoptStep>;

    /// How many rows [`clean_adopted`](Self::clean_adopted) would delete.
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

/// How an import is made.
#[derive(Debug, Clone, Copy)]
pub struct AdoptImport<'a> {
    /// Who does it, for the audit trail.
    pub operator: &'a str,
    /// Rows per step.
    pub rows_max: u32,
    /// Only count.
    pub dry_run: bool,
}

/// What `doctor` says of identities that another database may have as well.
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

/// What `doctor` says of one adoption: of `wanted` triggers (ends of names, tables), or why the
/// mapping does not fit.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn adoption_findings(
    outbox: &Outbox,
    adoption: &Adoption,
    wanted: Result<Vec<(&'static str, String)>, &StoreError>,
    there: impl Fn(&str, &str) -> bool,
) -> Vec<Finding> {
    let subject = format!("adopted table {}", adoption.table);
    let cure = "run `postrider migrate`, then `postrider outbox adopt` for what was inserted \
                meanwhile";
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => return vec![Finding::wrong(subject, error.to_string(), cure)],
    };
    let mut findings = Vec::new();
    for (end, table) in &wanted {
        let name = format!("{}_{end}", outbox.table());
        if !there(&name, table) {
            findings.push(Finding::wrong(
                format!("trigger {name} on {table}"),
                format!(
                    "is missing or disabled: outbox `{}` and table `{}` are out of step",
                    outbox.name(),
                    adoption.table
                ),
                cure,
            ));
        }
    }
    if findings.is_empty() {
        let found = format!("all {} triggers that serve it are there", wanted.len());
        findings.push(Finding::ok(subject, found));
    }
    findings
}
