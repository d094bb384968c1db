//! Transfers between accounts, published to Kafka, and a fraud detector that reads them.
//!
//! | file | purpose |
//! |---|---|
//! | `bank` | the transaction: debit, credit, record, append |
//! | `http` | the endpoints |
//! | `publish` | the relay to Kafka |
//! | `fraud` | the consumer, with an inbox in a database of its own |
//!
//! `transfer-example` runs all three in one process; `transfer-example api`, `relay` and `fraud`
//! run one each, as many of them as you like.

mod bank;
mod fraud;
mod http;
mod publish;

use std::error::Error;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Settings from the environment.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) database_url: String,
    pub(crate) fraud_database_url: String,
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) listen: String,
}

impl Settings {
    fn read() -> Self {
        let setting =
            |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
        Self {
            database_url: setting("DATABASE_URL", "sqlite:./transfer-data/bank.db"),
            fraud_database_url: setting("FRAUD_DATABASE_URL", "sqlite:./transfer-data/fraud.db"),
            brokers: setting("KAFKA_BROKERS", "127.0.0.1:9092"),
            topic: setting("TOPIC", "transfers"),
            listen: setting("LISTEN", "127.0.0.1:8081"),
        }
    }
}

#[tokio::main]
async fn main() -> Outcome {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let settings = Settings::read();
    let stop = CancellationToken::new();
    let mut terminated = signal(SignalKind::terminate())?;
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        stopping.cancel();
    });
    match std::env::args().nth(1).as_deref() {
        Some("api") => http::run(settings, stop).await,
        Some("relay") => publish::run(settings, stop).await,
        Some("fraud") => fraud::run(settings, stop).await,
        None => {
            let api = http::run(settings.clone(), stop.clone());
            let relay = publish::run(settings.clone(), stop.clone());
            let ended = tokio::try_join!(api, relay, fraud::run(settings, stop));
            ended.map(|_| ())
        }
        Some(other) => {
            Err(format!("unknown part `{other}`; use api, relay, fraud, or none for all").into())
        }
    }
}
