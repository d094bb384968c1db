//! The `postrider` binary.

mod cli;
mod commands;
mod config;
mod http;

use std::process::ExitCode;

use clap::Parser;
use postrider_command::{Failure, output};

use crate::cli::{Cli, Command};

/// One thread often frees what another one allocated for a request; the system's allocator takes
/// locks for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = output::start_log(&cli.log, cli.log_json) {
        eprintln!("postrider: {error}");
        return ExitCode::from(Failure::USAGE);
    }
    match dispatch(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        // A reader such as `head` closed the pipe because it has read enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("postrider: {}", output::visible(&failure.to_string()));
            if let Some(hint) = failure.hint() {
                eprintln!("{hint}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn dispatch(cli: Cli) -> Result<(), Failure> {
    let context = commands::Context { config: cli.config, store: cli.store };
    match cli.command {
        Command::Run(args) => commands::run::run(&context, &args).await,
        Command::Demo(args) => commands::demo::demo(&args).await,
        Command::Migrate(args) => commands::migrate::migrate(&context, &args).await,
        Command::Append(args) => commands::append::append(&context, args).await,
        Command::Stats(args) => commands::stats::stats(&context, &args).await,
        Command::Events(command) => commands::events::events(&context, command).await,
        Command::Dlq(command) => commands::dlq::dlq(&context, command).await,
        Command::Replay(args) => commands::jobs::replay(&context, args).await,
        Command::Jobs(command) => commands::jobs::jobs(&context, command).await,
        Command::Sink(command) => commands::pauses::sink(&context, &command).await,
        Command::Buffer(command) => commands::buffer::buffer(&context, command).await,
        Command::Inbox(command) => commands::inbox::inbox(&context, &command).await,
        Command::Audit(args) => commands::audit::audit(&context, args).await,
        Command::Outbox(command) => commands::outbox::outbox(&context, &command).await,
        Command::Reconcile(args) => commands::reconcile::reconcile(&context, &args).await,
        Command::Doctor(args) => commands::doctor::doctor(&context, &args).await,
        Command::Token(command) => commands::token::token(command),
        Command::Openapi => output::print(&http::document()),
        Command::Alert(command) => commands::alert::alert(&context, &command).await,
        Command::Config => output::print(config::DEFAULT),
        Command::Bench(command) => commands::bench::bench(&context, command).await,
        Command::Chaos(command) => commands::bench::chaos(&context, command).await,
        Command::ChaosApi(args) => postrider_bench::serve_api(&args).await,
        Command::ChaosRelay(args) => {
            let config = context.load()?;
            let (url, connections_max) = (config.store.url.expose(), config.store.connections_max);
            postrider_bench::serve_chaos_relay(url, connections_max, &args).await
        }
        Command::BenchRelay(args) => {
            let config = context.load()?;
            postrider_bench::serve_bench_relay(config.store.url.expose(), &args).await
        }
    }
}
