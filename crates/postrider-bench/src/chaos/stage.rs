//! A separate outbox for one run.

use std::sync::Arc;

use postrider::{NewEvent, Outbox};
use postrider_command::{Failure, connect};
use postrider_store::{Appender, ClaimMode, Database, OutboxSpec};

use super::{CALL, PAYLOAD, POISON};

pub(super) struct Stage {
    pub(super) store: Arc<dyn Database>,
    pub(super) outbox: Outbox,
    appender: Appender,
}

impl Stage {
    pub(super) async fn create(
        url: &str,
        connections_max: u32,
        claim: ClaimMode,
    ) -> Result<Self, Failure> {
        let store = connect(url, connections_max, true).await?;
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let outbox = Outbox::new(&format!("chaos_{}", &unique[..8]))?;
        let spec = OutboxSpec { claim, ..OutboxSpec::new(outbox.clone()) };
        store.migrate(&[spec]).await?;
        let appender = Appender::connect(url, 1).await?;
        Ok(Self { store, outbox, appender })
    }

    /// Appends the calls with these numbers in one transaction.
    pub(super) async fn append(
        &self,
        numbers: std::ops::Range<u64>,
        is_poison: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let call = |number: u64| {
            let kind = if is_poison(number) { POISON } else { CALL };
            NewEvent::new("character", number.to_string(), kind, PAYLOAD)
        };
        let calls: Vec<NewEvent> = numbers.map(call).collect();
        drop(self.appender.append_all(&self.outbox, &calls).await?);
        Ok(())
    }

    /// Drops the tables, whatever the run's result.
    pub(super) async fn drop_after<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let dropped = self.store.drop_outbox(&self.outbox).await;
        let value = result?;
        dropped?;
        Ok(value)
    }
}
