//! `postrider run`

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use postrider_command::{
    Failure, connect, install_metrics, output, stop_on_signal, without_password,
};
use postrider_relay::{OutboxConfig, Relay, delivery::backup, gateway::Gateway};
use postrider_store::{Appender, Database, Finding, OnSuccess, StoreKind, Verdict};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::RunArgs;
use crate::commands::{Context, require_schema, starting};
use crate::config::{Built, BuiltGateway, Config, ConfigError};
use crate::http;

pub(crate) async fn run(context: &Context, args: &RunArgs) -> Result<(), Failure> {
    let config = context.load()?;
    if args.check {
        return check(config).await;
    }
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    // A start may wait for the database, and must not keep the process from stopping.
    match stop.run_until_cancelled(Daemon::start(config, args.migrate)).await {
        Some(started) => started?.run(stop).await,
        None => Ok(()),
    }
}

/// Connects to everything and changes nothing.
async fn check(config: Config) -> Result<(), Failure> {
    let (url, connections_max) =
        (config.store.url.expose().to_owned(), config.store.connections_max);
    drop(http::access::Access::new(&config.server, &config.api)?);
    let built = config.build()?;
    check_backup_folder(&built)?;
    let store = connect(&url, connections_max, false).await?;
    let outboxes: Vec<_> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
    require_schema(store.as_ref(), &outboxes).await?;
    check_backup_writable(&built)?;
    if let Some(finding) = out_of_step(store.as_ref(), &built).await?.first() {
        let fix = finding.fix.as_deref().unwrap_or_default();
        let what = format!("{}: {}; {fix}", finding.subject, finding.finding);
        return Err(Failure::Schema(what));
    }
    for outbox in &built.outboxes {
        outbox.sink.check().await?;
    }
    for buffer in &built.buffers {
        buffer.check(store.as_ref()).await?;
        buffer.buffer.look().await?;
    }
    output::print("configuration, store and sinks are in order\n")
}

fn check_backup_folder(built: &Built) -> Result<(), Failure> {
    let folder = &built.relay.backup_folder;
    backup::check_folder(folder).map_err(|error| {
        let what = format!("[relay] backup_folder: `{}` {error}", folder.display());
        ConfigError::Invalid(what).into()
    })
}

/// Checks that the backup folder can be written. This follows the store, which may create the
/// folder's parent. A full disk is only logged: it may have room when the backup is needed, and
/// events are delivered until then.
fn check_backup_writable(built: &Built) -> Result<(), Failure> {
    let folder = &built.relay.backup_folder;
    let Err(error) = backup::check_writable(folder) else { return Ok(()) };
    let place = folder.display();
    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        tracing::error!(folder = %place, %error, "no room for the backup of dead letters");
        return Ok(());
    }
    Err(ConfigError::Invalid(format!(
        "[relay] backup_folder: `{place}` cannot be written: {error}; give this user the right to \
         write there, or name another folder"
    ))
    .into())
}

/// Returns the defects of adopted tables. A relay starts in spite of them: its own outboxes are in
/// order.
async fn out_of_step(store: &dyn Database, built: &Built) -> Result<Vec<Finding>, Failure> {
    let findings = store.diagnose_adoptions(&built.specs()).await?;
    Ok(findings.into_iter().filter(|finding| finding.verdict == Verdict::Error).collect())
}

/// Migrates if requested, and checks whether the tables are in order.
async fn prepare(store: &dyn Database, built: &Built, migrate: bool) -> Result<(), Failure> {
    let outboxes: Vec<_> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
    // The embedded store belongs to this program; a server's tables belong to their owner.
    if migrate || store.kind() == StoreKind::Sqlite {
        store.migrate(&built.specs()).await?;
    }
    require_schema(store, &outboxes).await?;
    for finding in out_of_step(store, built).await? {
        let Finding { subject, finding, fix, .. } = finding;
        tracing::error!(subject, finding, fix, "an adopted table is out of step");
    }
    Ok(())
}

/// A relay with its HTTP endpoints.
pub(crate) struct Daemon {
    pub(crate) store: Arc<dyn Database>,
    pub(crate) address: SocketAddr,
    relay: Relay,
    listener: TcpListener,
    state: http::ServerState,
}

impl Daemon {
    /// Connects, migrates if requested, and listens; delivers nothing yet.
    pub(crate) async fn start(config: Config, migrate: bool) -> Result<Self, Failure> {
        let (url, connections_max) =
            (config.store.url.expose().to_owned(), config.store.connections_max);
        let (server, api) = (config.server.clone(), config.api.clone());
        let access = http::access::Access::new(&server, &api)?;
        let built = config.build()?;
        if built.outboxes.is_empty() && built.buffers.is_empty() {
            return Err(Failure::Usage(
                "the configuration has no [[outbox]] and no [[buffer]]; `postrider config` prints \
                 one to start from"
                    .to_owned(),
            ));
        }
        check_backup_folder(&built)?;
        let store = starting::connect(&url, connections_max).await?;
        starting::repeated(async || prepare(store.as_ref(), &built, migrate).await).await?;
        check_backup_writable(&built)?;
        let metrics = install_metrics()?;
        let appender = starting::repeated(async || {
            let appender = Appender::connect(&url, connections_max).await;
            appender.map_err(|error| Failure::Connect { url: without_password(&url), error })
        })
        .await?;
        let refused = |error| Failure::Listen { address: server.listen, error };
        let listener = TcpListener::bind(server.listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;

        let gateway =
            |built: BuiltGateway| Gateway::new(built.upstream, built.outbox, appender.clone());
        let gateways: Vec<Gateway> = built.gateways.into_iter().map(gateway).collect();
        let served = built.outboxes.iter().map(served).collect();
        let inbox_retention = built.relay.inbox_retention;
        let mut relay =
            Relay::new(Arc::clone(&store), built.relay).alert_settings(built.alert_settings);
        if let Some(traces) = built.traces {
            relay = relay.traces(traces);
        }
        for outbox in built.outboxes {
            relay = relay.outbox(outbox);
        }
        for buffer in built.buffers {
            relay = relay.buffer(buffer);
        }
        for channel in built.channels {
            relay = relay.alert_channel(channel);
        }
        let state = http::ServerState::new(http::Parts {
            store: Arc::clone(&store),
            appender,
            outboxes: served,
            gateways,
            waker: relay.waker(),
            metrics,
            access,
            alerts: relay.alert_registry(),
            destinations: relay.destination_registry(),
            heartbeat_fails: relay.heartbeat_fails(),
            feed: http::Feed::new(api.stream_every.0, api.stream_clients_max),
            reconciler: http::Reconciler::default(),
            readiness: http::Readiness::default(),
            connections_per_address_max: server.connections_per_address_max,
            body_bytes_max: server.body_bytes_max,
            write_timeout: server.write_timeout.0,
            import_bytes_max: api.import_bytes_max,
            request_timeout: api.request_timeout.0,
            list_budget: api.list_budget.0,
            inbox_retention,
            stop: CancellationToken::new(),
        });
        tracing::info!(store = without_password(&url), "serving http://{address}");
        Ok(Self { store, address, relay, listener, state })
    }

    /// Delivers until stopped. Requests that were accepted before the stop are answered.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<(), Failure> {
        let serving = tokio::spawn(http::serve(self.listener, self.state, stop.clone()));
        let outcome = self.relay.run(stop.clone()).await;
        stop.cancel();
        drop(serving.await);
        Ok(outcome?)
    }
}

/// Returns the properties of an outbox that the API shows.
fn served(config: &OutboxConfig) -> http::Served {
    let children = config.fan_out.as_ref().map(|fan_out| fan_out.children());
    http::Served {
        outbox: config.outbox.clone(),
        preset: config.preset.name,
        sink: config.sink.name().to_owned(),
        branches: children.unwrap_or_default().iter().map(|o| o.name().to_owned()).collect(),
        archives: config.preset.on_success == OnSuccess::Archive,
        rate: config.rate.clone(),
    }
}
