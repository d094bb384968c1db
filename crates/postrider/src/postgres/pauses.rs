//! Pauses.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::PostgresStore;
use super::desk::audit;
use crate::store::{Pause, PauseKind, Pauses, Result, parse_stored};

#[async_trait]
impl Pauses for PostgresStore {
    async fn pauses(&self) -> Result<Vec<Pause>> {
        let rows: Vec<(String, String, String, String, DateTime<Utc>)> =
            sqlx::query_as(include_str!("sql/pauses.sql")).fetch_all(&self.pool).await?;
        rows.into_iter()
            .map(|(kind, name, operator, note, paused_at)| {
                let kind = parse_stored("kind", &kind)?;
                Ok(Pause { kind, name, operator, note, paused_at })
            })
            .collect()
    }

    async fn pause(&self, kind: PauseKind, name: &str, operator: &str, note: &str) -> Result<bool> {
        let mut tx = self.begin().await?;
        let paused = sqlx::query(include_str!("sql/pause.sql"))
            .bind(kind.as_str())
            .bind(name)
            .bind(operator)
            .bind(note)
            .execute(&mut *tx)
            .await?;
        let changed = paused.rows_affected() > 0;
        if changed {
            let action = format!("{}.pause", kind.as_str());
            audit(&mut tx, operator, &action, kind.outbox(name), name, note).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }

    async fn resume(
        &self,
        kind: PauseKind,
        name: &str,
        operator: &str,
        note: &str,
    ) -> Result<bool> {
        let mut tx = self.begin().await?;
        let resumed = sqlx::query(include_str!("sql/resume.sql"))
            .bind(kind.as_str())
            .bind(name)
            .execute(&mut *tx)
            .await?;
        let changed = resumed.rows_affected() > 0;
        if changed {
            let action = format!("{}.resume", kind.as_str());
            audit(&mut tx, operator, &action, kind.outbox(name), name, note).await?;
        }
        tx.commit().await?;
        Ok(changed)
    }
}
