//! The fraud detector: adds one line to the risk log for each transfer, exactly once.

use std::time::Duration;

use async_trait::async_trait;
use postrider::Inbox;
use postrider_consumer::{
    ConsumerPool, HandleError, Handler, KafkaConsumer, KafkaConsumerSettings, KafkaMessage,
};
use postrider_store::ConnectOptions;
use serde::Deserialize;
use sqlx::AssertSqlSafe;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Outcome, Settings};

/// Name of the consumer, of its group and of its inbox.
const CONSUMER: &str = "fraud-detector";
/// Maximum time that a starting detector waits for another one that creates the table.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Amounts from which a transfer has medium or high risk.
const MEDIUM_FROM: i64 = 1_000;
const HIGH_FROM: i64 = 10_000;

/// Creates the table. It has no unique key on `event_id`: the inbox ensures that a transfer is
/// logged once.
macro_rules! make_table {
    ($pool:expr, $id:literal) => {
        sqlx::raw_sql(concat!(
            "CREATE TABLE IF NOT EXISTS risk_log (
                 id ",
            $id,
            ",
                 event_id VARCHAR(100) NOT NULL,
                 account VARCHAR(50) NOT NULL,
                 transaction_id BIGINT NOT NULL,
                 amount BIGINT NOT NULL,
                 risk VARCHAR(10) NOT NULL)"
        ))
        .execute($pool)
        .await?
    };
}

/// Consumes until stopped.
pub(crate) async fn run(settings: Settings, stop: CancellationToken) -> Outcome {
    let url = settings.fraud_database_url.as_str();
    // A separate database: no outbox, but an inbox.
    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    postrider_store::connect(url, &options).await?.migrate(&[]).await?;
    match url.split(':').next() {
        Some("postgres" | "postgresql") => {
            let pool = sqlx::PgPool::connect(url).await?;
            // IF NOT EXISTS fails if two detectors start at the same moment.
            let mut tx = pool.begin().await?;
            postrider::postgres::lock(&mut tx, "risk_log", LOCK_TIMEOUT).await?;
            make_table!(&mut *tx, "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY");
            tx.commit().await?;
            consume(pool, &settings, stop).await
        }
        Some("mysql" | "mariadb") => {
            let pool = sqlx::MySqlPool::connect(url).await?;
            make_table!(&pool, "BIGINT AUTO_INCREMENT PRIMARY KEY");
            consume(pool, &settings, stop).await
        }
        _ => {
            let connect = postrider::sqlite::connect_options(url)?;
            let pool = sqlx::SqlitePool::connect_with(connect).await?;
            make_table!(&pool, "INTEGER PRIMARY KEY AUTOINCREMENT");
            consume(pool, &settings, stop).await
        }
    }
}

async fn consume<P: ConsumerPool>(pool: P, settings: &Settings, stop: CancellationToken) -> Outcome
where
    RiskLog: Handler<P::Db>,
{
    let mut kafka = KafkaConsumerSettings::new(&settings.brokers, CONSUMER, &settings.topic);
    // How long the partitions of a detector that died wait.
    kafka.client.insert("session.timeout.ms".to_owned(), "6000".to_owned());
    let consumer = KafkaConsumer::new(kafka, pool, Inbox::new(CONSUMER)?, RiskLog)?;
    let (stopping, stopped) = watch::channel(false);
    let mut running = tokio::spawn(consumer.run(stopped));
    tokio::select! {
        () = stop.cancelled() => {}
        // Ends only with an error: the program must not look healthy if no transfer is checked.
        ended = &mut running => return Ok(ended??),
    }
    stopping.send_replace(true);
    running.await??;
    Ok(())
}

/// The payload of an event.
#[derive(Debug, Deserialize)]
struct TransferCompleted {
    transaction_id: i64,
    from: String,
    amount: i64,
}

/// Logs the risk of each transfer.
struct RiskLog;

fn risk_of(amount: i64) -> &'static str {
    match amount {
        HIGH_FROM.. => "high",
        MEDIUM_FROM.. => "medium",
        _ => "low",
    }
}

fn read(message: &KafkaMessage) -> Result<TransferCompleted, HandleError> {
    serde_json::from_slice(&message.payload)
        .map_err(|error| HandleError::Poison(format!("this is not a transfer: {error}")))
}

/// Inserts the whole batch with one statement, with as many rows as it has messages.
macro_rules! risk_log_on {
    ($db:ty, $placeholders:expr) => {
        #[async_trait]
        impl Handler<$db> for RiskLog {
            async fn handle(
                &self,
                transaction: &mut <$db as sqlx::Database>::Connection,
                messages: &[KafkaMessage],
            ) -> Result<(), HandleError> {
                let rows: Vec<String> = (0..messages.len()).map($placeholders).collect();
                let statement = format!(
                    "INSERT INTO risk_log (event_id, account, transaction_id, amount, risk)
                     VALUES {}",
                    rows.join(", ")
                );
                let mut query = sqlx::query(AssertSqlSafe(statement)).persistent(false);
                for message in messages {
                    let transfer = read(message)?;
                    query = query
                        .bind(message.event.event_id.clone())
                        .bind(transfer.from)
                        .bind(transfer.transaction_id)
                        .bind(transfer.amount)
                        .bind(risk_of(transfer.amount));
                }
                query.execute(transaction).await?;
                Ok(())
            }
        }
    };
}

risk_log_on!(sqlx::Postgres, |row| {
    let number = |column| row * 5 + column;
    format!("(${}, ${}, ${}, ${}, ${})", number(1), number(2), number(3), number(4), number(5))
});
risk_log_on!(sqlx::MySql, |_| "(?, ?, ?, ?, ?)".to_owned());
risk_log_on!(sqlx::Sqlite, |_| "(?, ?, ?, ?, ?)".to_owned());
