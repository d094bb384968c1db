//! An outbox that lives as long as the benchmark.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use postrider::store::Database;
use postrider::{Appender, NewEvent, Outbox, OutboxSpec};

use crate::commands::{Failure, connect};
use crate::config::ConfigError;

/// Events per append.
const FILL_BATCH: u64 = 1_000;
/// Distinct ordering keys.
const KEYS: u64 = 10_000;

pub(super) struct BenchOutbox {
    pub(super) store: Arc<dyn Database>,
    pub(super) outbox: Outbox,
    appender: Appender,
}

impl BenchOutbox {
    pub(super) async fn create(url: &str, connections_max: u32) -> Result<Self, Failure> {
        let store = connect(url, connections_max, true).await?;
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let outbox = Outbox::new(&format!("bench_{}", &unique[..8])).map_err(ConfigError::from)?;
        store.migrate(&[OutboxSpec::new(outbox.clone())]).await?;
        let appender = Appender::connect(url, 1).await?;
        Ok(Self { store, outbox, appender })
    }

    /// Appends events, in batches; `deliver_after` makes them wait.
    pub(super) async fn fill(
        &self,
        events: u64,
        payload_bytes: usize,
        deliver_after: Option<Duration>,
    ) -> Result<(), Failure> {
        let bar = bar("filling", events);
        let payload = payload(payload_bytes);
        let mut done = 0;
        while done < events {
            let count = FILL_BATCH.min(events - done);
            let batch: Vec<NewEvent> = (done..done + count)
                .map(|n| {
                    let key = (n % KEYS).to_string();
                    let event = NewEvent::new("bench", key, "Measured", payload.clone());
                    match deliver_after {
                        Some(wait) => event.deliver_after(wait),
                        None => event,
                    }
                })
                .collect();
            drop(self.appender.append_all(&self.outbox, &batch).await?);
            done += count;
            bar.inc(count);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Whatever the measurement said, the tables go.
    pub(super) async fn drop_after<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let dropped = self.store.drop_outbox(&self.outbox).await;
        let value = result?;
        dropped?;
        Ok(value)
    }
}

/// JSON of exactly that size, where it is large enough to be JSON at all.
fn payload(bytes: usize) -> String {
    let frame = r#"{"data":""}"#;
    format!(r#"{{"data":"{}"}}"#, "x".repeat(bytes.saturating_sub(frame.len())))
}

pub(super) fn bar(title: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{msg:>9} {bar:40} {human_pos}/{human_len}  {per_sec}  {eta} left",
    );
    let bar = ProgressBar::new(total).with_message(title);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
