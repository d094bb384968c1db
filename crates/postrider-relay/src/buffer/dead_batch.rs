//! Dead letters of a buffer: backup file, then metric, then alert. The batch is removed from Redis
//! only when it is in the file and recorded as dead in the database.

use std::sync::Arc;

use chrono::Utc;
use postrider::buffer::{Adopted, BatchEnd, ListedBatch, MovedBatch};
use postrider_store::{BatchState, Lease};

use super::worker::{Trouble, Worker};
use crate::alerts::{Alert, Severity};
use crate::delivery::backup::{DeadBatch, Record};
use crate::telemetry;

impl Worker {
    /// Dead-letters a batch that is cancelled in the database. Each step may be repeated; `error`
    /// is used only when the batch is first written to the backup file.
    pub(super) async fn move_to_dlq(
        &mut self,
        batch: &MovedBatch,
        lease: &Lease,
        error: &str,
    ) -> Result<(), Trouble> {
        let name = self.config.buffer.name().to_owned();
        // Only while Redis still holds the batch: counts that went back to the buffer must not be
        // in the file too.
        let owner = &lease.relay_id;
        let held = self.config.buffer.adopt(batch.id, owner, owner).await?;
        if !matches!(held, Adopted::Batch(_)) {
            return Ok(());
        }
        if !self.backed_up.contains(&batch.id) {
            self.back_up(batch, error).await?;
            self.backed_up.insert(batch.id);
            self.count(telemetry::BUFFER_DEAD_LETTERS, 1);
            self.alert_dead(batch, error);
        }
        self.store.mark_batch_dead(lease, &name, batch.id).await?;
        self.config.buffer.finish(batch.id, BatchEnd::Dead).await?;
        self.backed_up.remove(&batch.id);
        Ok(())
    }

    async fn back_up(&self, batch: &MovedBatch, error: &str) -> Result<(), Trouble> {
        let raw = |(field, value): &(Vec<u8>, Vec<u8>)| (field[..].into(), value[..].into());
        let record = Record::Batch(DeadBatch {
            buffer: self.config.buffer.name().to_owned(),
            batch: batch.id,
            written_at: Utc::now(),
            error: error.to_owned(),
            fields: batch.fields.iter().map(raw).collect(),
        });
        let backup = Arc::clone(&self.backup);
        let written = tokio::task::spawn_blocking(move || backup.append(&[record])).await;
        let written = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
        written.map_err(|error| {
            self.count(telemetry::BUFFER_CRITICAL, 1);
            Trouble::Backup(error)
        })
    }

    fn alert_dead(&self, batch: &MovedBatch, error: &str) {
        let (name, file) = (self.config.buffer.name(), self.backup.path());
        tracing::error!(buffer = name, batch = %batch.id, entries = batch.fields.len(), error,
            file = %file.display(), "batch dead-lettered: it is in the backup file");
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("buffer-dead-letter/{name}"),
            title: format!("Dead letter of buffer {name}: a batch is in the backup file"),
            fields: vec![
                ("batch", batch.id.to_string()),
                ("entries", batch.fields.len().to_string()),
                ("error", error.chars().take(300).collect()),
                ("file", file.display().to_string()),
            ],
            event: None,
        });
    }

    /// Ends a batch that is on the list but whose key is gone from Redis: it was saved (and its
    /// time to live removed the key), or is in the backup file, or is lost.
    pub(super) async fn end_lost(&mut self, listed: &ListedBatch) -> Result<(), Trouble> {
        let states = self.store.batch_states(&[listed.id]).await?;
        let buffer = &self.config.buffer;
        match states.first().map(|(_, state)| *state) {
            Some(BatchState::Applied) => {
                let ended = buffer.finish(listed.id, BatchEnd::Ignored).await?;
                self.count(telemetry::BUFFER_IGNORED, ended);
            }
            Some(BatchState::Dead | BatchState::Imported) => {
                buffer.finish(listed.id, BatchEnd::Dead).await?;
            }
            Some(BatchState::Cancelled) | None => {
                self.alert_lost(listed);
                buffer.finish(listed.id, BatchEnd::Lost).await?;
            }
        }
        Ok(())
    }

    fn alert_lost(&self, listed: &ListedBatch) {
        let name = self.config.buffer.name();
        self.count(telemetry::BUFFER_CRITICAL, 1);
        tracing::error!(buffer = name, batch = %listed.id, entries = listed.entries,
            "Redis lost a batch before it was saved: evicted, deleted, or not persisted");
        self.alerts.raise(Alert {
            severity: Severity::Critical,
            kind: format!("buffer-lost/{name}"),
            title: format!("Redis lost a batch of buffer {name} before it was saved"),
            fields: vec![
                ("batch", listed.id.to_string()),
                ("entries", listed.entries.to_string()),
                ("fix", "check eviction and persistence of Redis; see docs/buffer.md".to_owned()),
            ],
            event: None,
        });
    }
}
