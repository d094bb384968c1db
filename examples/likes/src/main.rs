//! Likes: a request adds to a count in Redis; a relay in the same process saves the counts.

mod table;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use postrider::buffer::{Buffer, BufferError, BufferSettings};
use postrider_relay::{BufferConfig, Relay, RelayConfig};
use postrider_store::{Appender, BatchTarget, ConnectOptions, TableTarget};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

struct Likes {
    buffer: Buffer,
    database: Appender,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let setting = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let url = setting("STORE_URL", "sqlite:./likes-data/likes.db");
    let settings =
        BufferSettings::new(setting("BUFFER", "likes"), setting("REDIS_URL", "redis://127.0.0.1"));

    let options = ConnectOptions { create: true, ..ConnectOptions::default() };
    let store = postrider_store::connect(&url, &options).await?;
    // Postrider's own tables; the likes table belongs to the example.
    store.migrate(&[]).await?;
    let database = Appender::connect(&url, 4).await?;
    table::create(&database).await?;

    let target = BatchTarget::Table(TableTarget::new("likes", "post_id", "likes")?);
    let relay_config = RelayConfig {
        backup_folder: PathBuf::from(setting("BACKUP_FOLDER", "./likes-data/dead-letters")),
        ..RelayConfig::default()
    };
    // The worker has a connection of its own.
    let worker = BufferConfig::new(Arc::new(Buffer::new(settings.clone())?), target);
    // Before the first like is accepted: an unusable table would make all of them wait.
    worker.check(store.as_ref()).await?;
    let relay = Relay::new(store, relay_config).buffer(worker);
    let stop = CancellationToken::new();

    let likes = Arc::new(Likes { buffer: Buffer::new(settings)?, database });
    let app = Router::new()
        .route("/posts/{post}/like", post(like))
        .route("/posts/{post}", get(show))
        .with_state(likes);
    let listener = TcpListener::bind(setting("LISTEN", "127.0.0.1:8080")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let serving = axum::serve(listener, app)
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) });
    let relaying = tokio::spawn(relay.run(stop.clone()));
    // Whichever fails ends the service: it must not accept likes that are never saved.
    tokio::try_join!(
        async {
            let served = serving.await;
            // The worker stops after the last request.
            stop.cancel();
            served.map_err(Box::<dyn Error>::from)
        },
        async { Ok(relaying.await??) },
    )?;
    Ok(())
}

/// Adds a like. The answer contains how many likes of this post are not in the table yet.
async fn like(State(likes): State<Arc<Likes>>, Path(post): Path<String>) -> Response {
    if post.chars().count() > table::POST_CHARS_MAX {
        return problem(StatusCode::BAD_REQUEST, "the id of the post is too long");
    }
    match likes.buffer.increment(&post, 1).await {
        Ok(waiting) => (StatusCode::ACCEPTED, Json(json!({ "post": post, "waiting": waiting })))
            .into_response(),
        Err(error @ BufferError::Invalid(_)) => problem(StatusCode::BAD_REQUEST, error),
        // Whether the like was counted is unknown: the caller must not simply repeat it.
        Err(error @ BufferError::Unavailable(_)) => problem(StatusCode::GATEWAY_TIMEOUT, error),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

/// Returns the likes that are in the table.
async fn show(State(likes): State<Arc<Likes>>, Path(post): Path<String>) -> Response {
    match table::likes(&likes.database, &post).await {
        Ok(count) => Json(json!({ "post": post, "likes": count })).into_response(),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, error),
    }
}

fn problem(status: StatusCode, error: impl std::fmt::Display) -> Response {
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}
