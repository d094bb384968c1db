//! The command line of operators: events, dead letters, jobs, pauses, the audit trail.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use postrider::limits::OPERATOR_CHARS_MAX;
use postrider_command::parse_time;
use postrider_store::{CANARY_MAX, ClaimMode, DeadReason, JobState, Status};

use super::adopt::AdoptArgs;
use super::header;

/// Who acts, and why.
#[derive(Debug, Args)]
pub(crate) struct By {
    /// Your name, for the audit trail
    #[arg(long, default_value_t = operator(), value_parser = operator_name)]
    pub(crate) operator: String,
    /// Why, for the audit trail
    #[arg(long, default_value = "")]
    pub(crate) note: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// List live events, or delivered ones with --status COMPLETED; newest first
    List {
        /// PENDING, PROCESSING, FAILED, DEAD_LETTER or COMPLETED (the archive)
        #[arg(long)]
        status: Option<Status>,
        /// Only errors that contain this text
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
        #[command(flatten)]
        filter: EventFilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one event with its failed attempts
    Show {
        /// Name of the outbox; may be left out if there is only one
        #[arg(long, short)]
        outbox: Option<String>,
        /// Row id of the event
        id: i64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Find everything that has one identity: live, delivered, dead letters
    Find {
        /// Name of the outbox; may be left out if there is only one
        #[arg(long, short)]
        outbox: Option<String>,
        /// The identity (event_id)
        event_id: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EventFilterArgs {
    /// Name of the outbox; may be left out if there is only one
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// Only this event type
    #[arg(long)]
    pub(crate) event_type: Option<String>,
    /// Only this aggregate type
    #[arg(long)]
    pub(crate) aggregate_type: Option<String>,
    /// Only this aggregate
    #[arg(long)]
    pub(crate) aggregate_id: Option<String>,
    /// Only this identity
    #[arg(long)]
    pub(crate) event_id: Option<String>,
    /// Only this request id
    #[arg(long)]
    pub(crate) request_id: Option<String>,
    /// Appended at or after, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<DateTime<Utc>>,
    /// Appended before
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<DateTime<Utc>>,
    /// Delivered at or after (the archive)
    #[arg(long, value_name = "TIME")]
    pub(crate) delivered_since: Option<DateTime<Utc>>,
    /// Delivered before (the archive)
    #[arg(long, value_name = "TIME")]
    pub(crate) delivered_until: Option<DateTime<Utc>>,
    /// Only copies that a replay made (true), or only others (false; `replay` leaves copies out)
    #[arg(long)]
    pub(crate) replayed: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Rows at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    /// Only rows below this id: the next page
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<i64>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters, newest first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Dead letters by the kind of their error
    Groups {
        #[command(flatten)]
        filter: FilterArgs,
        /// Groups at most
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one dead letter with its failed attempts
    Show {
        /// Name of the outbox; may be left out if there is only one
        #[arg(long, short)]
        outbox: Option<String>,
        /// Id of the dead letter
        id: i64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send dead letters again: fresh events with a fresh budget and the same identity
    Retry(ActArgs),
    /// Resolve dead letters by hand
    Resolve(ActArgs),
    /// Take back a resolution by hand; what was sent again stays sent
    Reopen {
        /// Ids of dead letters
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Name of the outbox; may be left out if there is only one
        #[arg(long, short)]
        outbox: Option<String>,
        #[command(flatten)]
        by: By,
    },
    /// Send an edited copy of a dead letter: a new event that names the original
    Edit(EditArgs),
    /// Write dead letters to a file that `dlq import` reads
    Export(ExportArgs),
    /// Put events from a backup file or an export into the dead letters
    Import {
        /// Files (JSON lines), or folders of them, read together; `-` is standard input
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Only show what would happen
        #[arg(long)]
        dry_run: bool,
        /// Your name, for the audit trail
        #[arg(long, default_value_t = operator(), value_parser = operator_name)]
        operator: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// Name of the outbox; may be left out if there is only one
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// Id of the dead letter
    pub(crate) id: i64,
    /// File with the new body; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
    /// A header to set, NAME=VALUE; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// A header to remove; may be repeated
    #[arg(long = "without-header", value_name = "NAME")]
    pub(crate) without_headers: Vec<String>,
    /// Another event type
    #[arg(long)]
    pub(crate) event_type: Option<String>,
    /// Another first half of the ordering key
    #[arg(long)]
    pub(crate) aggregate_type: Option<String>,
    /// Another second half of the ordering key
    #[arg(long)]
    pub(crate) aggregate_id: Option<String>,
    #[command(flatten)]
    pub(crate) by: By,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// The new file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Have all relays start nothing more of an outbox, until it is resumed
    Pause {
        /// Name of the outbox
        outbox: String,
        #[command(flatten)]
        by: By,
    },
    /// Let a paused outbox go on
    Resume {
        /// Name of the outbox
        outbox: String,
        #[command(flatten)]
        by: By,
    },
    /// Change the claim mode for all relays, while they run: each finishes what it holds first
    SetClaim {
        /// Name of the outbox
        outbox: String,
        /// rows or lanes
        claim: ClaimMode,
        /// Your name, for the audit trail
        #[arg(long, default_value_t = operator(), value_parser = operator_name)]
        operator: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Import what an adopted table had before it was adopted; can be repeated
    Adopt(AdoptArgs),
    /// Let a key go on that stopped behind a dead letter (failing_key = "park")
    ReleaseKey {
        /// Name of the outbox; may be left out if there is only one
        #[arg(long, short)]
        outbox: Option<String>,
        /// First half of the key
        #[arg(long)]
        aggregate_type: String,
        /// Second half of the key
        #[arg(long)]
        aggregate_id: String,
        /// Your name, for the audit trail
        #[arg(long, default_value_t = operator(), value_parser = operator_name)]
        operator: String,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SinkCommand {
    /// Have all relays start nothing more that leads to a sink, until it is resumed
    Pause {
        /// Name of the sink
        sink: String,
        #[command(flatten)]
        by: By,
    },
    /// Let a paused sink go on
    Resume {
        /// Name of the sink
        sink: String,
        #[command(flatten)]
        by: By,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List jobs, newest first
    List {
        /// Only of this outbox
        #[arg(long, short)]
        outbox: Option<String>,
        /// waiting, running, canary, done, stopped or failed
        #[arg(long)]
        state: Option<JobState>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one job
    Show {
        /// Id of the job
        id: i64,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop a job; what it has done stays done
    Stop {
        /// Id of the job
        id: i64,
        #[command(flatten)]
        by: By,
    },
    /// Have a job go on where it stopped, here in the foreground
    Resume {
        /// Id of the job
        id: i64,
        #[command(flatten)]
        by: By,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Name of the outbox; may be left out if there is only one
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// Only this event type
    #[arg(long)]
    pub(crate) event_type: Option<String>,
    /// Only this aggregate type
    #[arg(long)]
    pub(crate) aggregate_type: Option<String>,
    /// Only this aggregate
    #[arg(long)]
    pub(crate) aggregate_id: Option<String>,
    /// Only this identity
    #[arg(long)]
    pub(crate) event_id: Option<String>,
    /// Only errors that contain this text
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Only errors of this kind, as `dlq groups` shows them
    #[arg(long)]
    pub(crate) fingerprint: Option<String>,
    /// exhausted, rejected, integrity, no_route, expired or crash
    #[arg(long)]
    pub(crate) reason: Option<DeadReason>,
    /// Only resolved (true) or unresolved (false) ones
    #[arg(long)]
    pub(crate) resolved: Option<bool>,
    /// Given up at or after, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<DateTime<Utc>>,
    /// Given up before
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<DateTime<Utc>>,
}

#[derive(Debug, Args)]
pub(crate) struct ActArgs {
    /// Ids of dead letters; or give a filter and --all
    pub(crate) ids: Vec<i64>,
    /// Act on every unresolved dead letter that fits the filter, as a job
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    #[command(flatten)]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a job goes about it.
#[derive(Debug, Args)]
pub(crate) struct PaceArgs {
    /// Only show how many would be acted on
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Events per second at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: Option<u32>,
    /// So many first; the rest follows when they are delivered
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CANARY_MAX))
    )]
    pub(crate) canary: Option<u32>,
    /// Time for the first ones to be delivered
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) canary_within: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) filter: EventFilterArgs,
    /// Into another outbox: one branch of a fan-out, so that only its sink gets them
    #[arg(long, value_name = "OUTBOX")]
    pub(crate) into: Option<String>,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    #[command(flatten)]
    pub(crate) by: By,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Only this outbox
    #[arg(long, short)]
    pub(crate) outbox: Option<String>,
    /// Only this operator
    #[arg(long)]
    pub(crate) operator: Option<String>,
    /// Only this action, such as dlq.retry
    #[arg(long)]
    pub(crate) action: Option<String>,
    /// Only this entry, such as the id of a dead letter
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// At or after, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<DateTime<Utc>>,
    /// Before
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<DateTime<Utc>>,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

/// Returns the user of the operating system.
pub(super) fn operator() -> String {
    use std::os::unix::fs::MetadataExt;
    ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        // In a container, neither may be set; the user's number still identifies the operator.
        .or_else(|| std::fs::metadata("/proc/self").ok().map(|this| format!("uid {}", this.uid())))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Checks that a name fits the audit trail.
pub(super) fn operator_name(name: &str) -> Result<String, String> {
    match name.chars().count() {
        0..=OPERATOR_CHARS_MAX => Ok(name.to_owned()),
        length => Err(format!(
            "the name has {length} characters; the audit trail takes at most {OPERATOR_CHARS_MAX}: \
             use a shorter one"
        )),
    }
}
