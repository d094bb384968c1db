//! Donations: points move from a guest to an admin, and a notification is sent.
//!
//! | file | purpose |
//! |---|---|
//! | `donation` | requests, receipts, and the reasons for a refusal |
//! | `ledger` | the transaction, on each database |
//! | `http` | the endpoints |
//! | `notify` | the relay that sends notifications |

mod donation;
mod http;
mod ledger;
mod notify;

use std::error::Error;
use std::net::SocketAddr;

use postrider::Outbox;
use postrider_store::{ConnectOptions, OutboxSpec};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let url = setting("DATABASE_URL", "sqlite:./donation-data/donation.db");
    let listen: SocketAddr = setting("LISTEN", "127.0.0.1:8080").parse()?;

    let outbox = Outbox::new("donations")?;
    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    let store = postrider_store::connect(&url, &options).await?;
    store.migrate(&[OutboxSpec::new(outbox.clone())]).await?;
    let ledger = Ledger::connect(&url, outbox.clone()).await?;

    let relay = notify::relay(store, outbox, std::env::var("DISCORD_WEBHOOK_URL").ok())?;
    let waker = relay.waker();
    let stop = CancellationToken::new();

    let listener = TcpListener::bind(listen).await?;
    tracing::info!("serving http://{}", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let serving =
        axum::serve(listener, http::router(ledger, waker)).with_graceful_shutdown(async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        });
    let relaying = tokio::spawn(relay.run(stop.clone()));
    // Whichever fails ends the service: it must not look healthy if notifications are never sent.
    tokio::try_join!(
        async {
            let served = serving.await;
            // The relay stops after the last request.
            stop.cancel();
            served.map_err(Box::<dyn Error>::from)
        },
        async { Ok(relaying.await??) },
    )?;
    Ok(())
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}
