//! SQLite cannot adopt tables.

use std::time::Duration;

use async_trait::async_trait;
use postrider::Outbox;

use super::SqliteStore;
use crate::adopt::Adoption;
use crate::contract::{Adopt, AdoptCursor, AdoptImport, AdoptStep, Finding, Result};
use crate::{OutboxSpec, StoreError};

#[async_trait]
impl Adopt for SqliteStore {
    async fn adoption_sql(&self, outboxes: &[OutboxSpec]) -> Result<String> {
        refuse_adoptions(outboxes).map(|()| String::new())
    }

    async fn diagnose_adoptions(&self, outboxes: &[OutboxSpec]) -> Result<Vec<Finding>> {
        let refused = refuse_adoptions(outboxes).err();
        let fix = "use PostgreSQL, MySQL or MariaDB, or remove [outbox.adopt]";
        Ok(refused
            .map(|e| Finding::error("adopted tables", e.to_string(), fix))
            .into_iter()
            .collect())
    }

    async fn adoptable(&self, outbox: &Outbox, adoption: &Adoption) -> Result<u64> {
        Err(refused(outbox, adoption))
    }

    async fn adopt_step(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        _cursor: &AdoptCursor,
        _import: &AdoptImport<'_>,
    ) -> Result<AdoptStep> {
        Err(refused(outbox, adoption))
    }

    async fn expired_rows(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        _age: Duration,
    ) -> Result<u64> {
        Err(refused(outbox, adoption))
    }

    async fn clean_adopted(
        &self,
        outbox: &Outbox,
        adoption: &Adoption,
        _age: Duration,
        _chunk: u32,
    ) -> Result<u64> {
        Err(refused(outbox, adoption))
    }
}

/// Refuses adoptions before any table is created for them.
pub(super) fn refuse_adoptions(outboxes: &[OutboxSpec]) -> Result<()> {
    let found = outboxes.iter().find_map(|spec| Some((&spec.outbox, spec.adoption.as_ref()?)));
    found.map_or(Ok(()), |(outbox, adoption)| Err(refused(outbox, adoption)))
}

fn refused(outbox: &Outbox, adoption: &Adoption) -> StoreError {
    StoreError::Schema(format!(
        "outbox `{}` is to serve table `{}` ([outbox.adopt]): SQLite cannot adopt tables; use \
         PostgreSQL, MySQL or MariaDB, or insert into `{}` itself",
        outbox.name(),
        adoption.table,
        outbox.table()
    ))
}
