//! Pauses.

use async_trait::async_trait;

use super::row::Row;
use super::session::SqlStore;
use super::sql;
use crate::contract::{Pause, PauseKind, Pauses, Result, parse_stored};

#[async_trait]
impl<S: SqlStore> Pauses for S {
    async fn pauses(&self) -> Result<Vec<Pause>> {
        self.fetch(sql::PAUSES.query()).await?.iter().map(pause).collect()
    }

    async fn pause(&self, kind: PauseKind, name: &str, operator: &str, note: &str) -> Result<bool> {
        let mut tx = self.session().await?;
        let pause = sql::PAUSE.query().bind("kind", kind.as_str()).bind("name", name);
        let pause = pause.bind("operator", operator).bind("note", note);
        if !tx.insert_unless_known(pause).await? {
            return Ok(false);
        }
        let action = format!("{}.pause", kind.as_str());
        tx.audit(operator, &action, kind.outbox(name), name, note).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn resume(
        &self,
        kind: PauseKind,
        name: &str,
        operator: &str,
        note: &str,
    ) -> Result<bool> {
        let mut tx = self.session().await?;
        let resume = sql::RESUME.query().bind("kind", kind.as_str()).bind("name", name);
        if tx.execute(resume).await? == 0 {
            return Ok(false);
        }
        let action = format!("{}.resume", kind.as_str());
        tx.audit(operator, &action, kind.outbox(name), name, note).await?;
        tx.commit().await?;
        Ok(true)
    }
}

fn pause(row: &Row) -> Result<Pause> {
    Ok(Pause {
        kind: parse_stored("kind", &row.text("kind")?)?,
        name: row.text("name")?,
        operator: row.text("operator")?,
        note: row.text("note")?,
        paused_at: row.time("paused_at")?,
    })
}
