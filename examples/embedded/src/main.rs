//! Business change, event, relay and handler in one program.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use postrider::{NewEvent, Outbox, sqlite};
use postrider_relay::{OutboxConfig, Preset, Relay, RelayConfig, sinks::HandlerSink};
use postrider_store::{ConnectOptions, Database, DlqFilter, OutboxSpec, Page, StoreError};
use sqlx::SqlitePool;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("postrider-embedded-{}", std::process::id()));
    let outcome = run(&folder).await;
    std::fs::remove_dir_all(&folder)?;
    outcome
}

async fn run(folder: &Path) -> Result<(), Box<dyn Error>> {
    let url = format!("sqlite:{}", folder.join("shop.db").display());
    let outbox = Outbox::new("orders")?;

    // The relay's store creates the file and the tables of the outbox.
    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    let store = postrider_store::connect(&url, &options).await?;
    store.migrate(&[OutboxSpec::new(outbox.clone())]).await?;

    // The application has its own connections to the same file.
    let shop = SqlitePool::connect_with(sqlite::connect_options(&url)?).await?;
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL)")
        .execute(&shop)
        .await?;

    let sink = HandlerSink::new("mail").on("OrderPlaced", |event| async move {
        println!("confirmation for order {}", event.aggregate_id);
        Ok(())
    });
    let relay = Relay::new(Arc::clone(&store), relay_config(folder)).outbox(OutboxConfig::new(
        outbox.clone(),
        Preset::handler(),
        Arc::new(sink),
    ));
    let (waker, stop) = (relay.waker(), CancellationToken::new());
    let mut relaying = tokio::spawn(relay.run(stop.clone()));

    for order in 1..=3 {
        place(&shop, &outbox, order, "OrderPlaced", true).await?;
    }
    place(&shop, &outbox, 4, "OrderPlaced", false).await?;
    place(&shop, &outbox, 5, "OrderAudited", true).await?;
    waker.wake();

    tokio::select! {
        delivered = until_delivered(store.as_ref(), &outbox) => delivered?,
        // Ends only with an error: nothing would be delivered any more.
        ended = &mut relaying => return Ok(ended??),
    }
    stop.cancel();
    relaying.await??;
    report(store.as_ref(), &outbox).await
}

async fn until_delivered(store: &dyn Database, outbox: &Outbox) -> Result<(), StoreError> {
    while store.statistics(outbox).await?.pending > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn relay_config(folder: &Path) -> RelayConfig {
    let backup_folder: PathBuf = folder.join("dead-letters");
    RelayConfig { backup_folder, ..RelayConfig::default() }
}

/// Writes the order and its event: both, or neither.
async fn place(
    shop: &SqlitePool,
    outbox: &Outbox,
    order: i64,
    event_type: &str,
    accepted: bool,
) -> Result<(), Box<dyn Error>> {
    let mut tx = shop.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query("INSERT INTO orders (id, amount) VALUES (?, 25)")
        .bind(order)
        .execute(&mut *tx)
        .await?;
    let event = NewEvent::new("order", order.to_string(), event_type, r#"{"amount":25}"#)
        .request_id(format!("{event_type}-{order}"));
    let appended = sqlite::append(&mut tx, outbox, &event).await?;
    match accepted && !appended.is_duplicate() {
        true => tx.commit().await?,
        false => tx.rollback().await?,
    }
    Ok(())
}

async fn report(store: &dyn Database, outbox: &Outbox) -> Result<(), Box<dyn Error>> {
    let statistics = store.statistics(outbox).await?;
    let page = Page::first(10);
    let dead = store.dead_letters(outbox, &DlqFilter::default(), page).await?.rows;
    let reasons: Vec<String> =
        dead.iter().map(|d| format!("{}: {}", d.event_type, d.error_message)).collect();
    println!(
        "delivered {}, dead letters {} ({}), pending {}",
        statistics.delivered,
        statistics.dead,
        reasons.join(", "),
        statistics.pending
    );
    Ok(())
}
