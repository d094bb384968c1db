//! The relay to Kafka, in lanes: one account's transfers arrive in order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{
    OutboxConfig, Preset, Relay, RelayConfig,
    sinks::{KafkaSettings, KafkaSink},
};
use tokio_util::sync::CancellationToken;

use crate::{Outcome, Settings, bank};

/// Relays until stopped.
pub(crate) async fn run(settings: Settings, stop: CancellationToken) -> Outcome {
    let store = bank::store(&settings.database_url).await?;
    let sink = KafkaSink::new(KafkaSettings::new("kafka", &settings.brokers, &settings.topic))?;
    let config = RelayConfig {
        // How long the lanes of a relay that died wait.
        lease: Duration::from_secs(3),
        heartbeat_every: Duration::from_millis(500),
        backup_folder: PathBuf::from("transfer-data/dead-letters"),
        ..RelayConfig::default()
    };
    let outbox = OutboxConfig::new(bank::outbox(), Preset::broker(), Arc::new(sink));
    Relay::new(store, config).outbox(outbox).run(stop).await?;
    Ok(())
}
