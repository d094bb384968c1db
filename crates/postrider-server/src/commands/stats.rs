//! `postrider stats`

use postrider_command::{
    Failure,
    output::{self, Table, age, number},
};
use postrider_relay::OutboxConfig;
use postrider_store::{
    BlockedKey, ClaimMode, DownDestination, Mode, Pause, PauseKind, RelayPulse, Statistics,
};
use serde::Serialize;

use crate::cli::ReadArgs;
use crate::commands::Context;

#[derive(Serialize)]
struct Line {
    outbox: String,
    #[serde(flatten)]
    statistics: Statistics,
    #[serde(flatten)]
    mode: Option<Mode>,
    /// Keys that wait behind an event that cannot be delivered. Claim mode `lanes` only.
    blocked_keys: Vec<BlockedKey>,
    /// Destinations that are down, as the relays see them.
    down: Vec<DownDestination>,
    /// Pauses by operators: of the outbox, or of its sink.
    paused: Vec<Pause>,
}

/// Maximum number of blocked keys shown.
const BLOCKED_KEYS_MAX: u32 = 100;
/// Maximum number of rows searched for them.
const ROWS_MAX: i64 = 200_000;

pub(crate) async fn stats(context: &Context, args: &ReadArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let modes = opened.store.modes().await?;
    let relays = opened.store.relays().await?;
    let pauses = opened.store.pauses().await?;
    let mut lines = Vec::new();
    for outbox in opened.outboxes(args.outbox.as_deref())? {
        let statistics = opened.store.statistics(&outbox).await?;
        let mode = modes.iter().find(|(name, _)| name == outbox.name()).map(|(_, mode)| *mode);
        let blocked_keys = match mode.map(|mode| mode.claim) {
            Some(ClaimMode::Lanes) => {
                opened.store.blocked_keys(&outbox, BLOCKED_KEYS_MAX, ROWS_MAX).await?
            }
            _ => Vec::new(),
        };
        let down = down(&relays, outbox.name());
        let outbox = outbox.name().to_owned();
        let paused = paused(&pauses, &opened.built.outboxes, &outbox);
        lines.push(Line { outbox, statistics, mode, blocked_keys, down, paused });
    }
    if args.json {
        return output::print_json(&lines);
    }
    let mut table = Table::new(&[
        "OUTBOX",
        "TYPE",
        "APPENDED",
        "DELIVERED",
        "DEAD",
        "PENDING",
        "OLDEST",
        "UNRESOLVED",
    ]);
    for Line { outbox, statistics: s, .. } in &lines {
        table.row(vec![
            outbox.clone(),
            "all".to_owned(),
            number(s.appended),
            number(s.delivered),
            number(s.dead),
            number(s.pending),
            s.oldest_age_s.map_or_else(|| "-".to_owned(), age),
            number(s.unresolved),
        ]);
        for t in &s.by_type {
            table.row(vec![
                String::new(),
                t.event_type.clone(),
                number(t.appended),
                number(t.delivered),
                number(t.dead),
                number(t.appended - t.delivered - t.dead),
            ]);
        }
    }
    table.print()?;
    print_paused(&lines)?;
    print_blocked(&lines)?;
    print_down(&lines)
}

/// Returns the pauses that stop the work on an outbox.
fn paused(pauses: &[Pause], configured: &[OutboxConfig], outbox: &str) -> Vec<Pause> {
    let config = configured.iter().find(|config| config.outbox.name() == outbox);
    let holds = |pause: &&Pause| match pause.kind {
        PauseKind::Outbox => pause.name == outbox,
        PauseKind::Sink => config.is_some_and(|config| config.sink.name() == pause.name),
    };
    pauses.iter().filter(holds).cloned().collect()
}

fn print_paused(lines: &[Line]) -> Result<(), Failure> {
    if lines.iter().all(|line| line.paused.is_empty()) {
        return Ok(());
    }
    let mut table = Table::new(&["OUTBOX", "PAUSED", "SINCE", "BY", "NOTE"]);
    for line in lines {
        for pause in &line.paused {
            table.row(vec![
                line.outbox.clone(),
                format!("{} {}", pause.kind.as_str(), pause.name),
                pause.paused_at.format("%Y-%m-%d %H:%M:%SZ").to_string(),
                pause.operator.clone(),
                pause.note.clone(),
            ]);
        }
    }
    output::print("\n")?;
    table.print()
}

/// Returns each destination that is down once, as seen by the relay that noticed it first.
fn down(relays: &[RelayPulse], outbox: &str) -> Vec<DownDestination> {
    let live = relays.iter().filter(|relay| !relay.fenced);
    let serving = live.flat_map(|relay| &relay.serving).filter(|serving| serving.outbox == outbox);
    let mut down: Vec<_> = serving.flat_map(|serving| serving.down.clone()).collect();
    down.sort_by(|a, b| (&a.destination, a.since).cmp(&(&b.destination, b.since)));
    down.dedup_by(|a, b| a.destination == b.destination);
    down
}

fn print_down(lines: &[Line]) -> Result<(), Failure> {
    if lines.iter().all(|line| line.down.is_empty()) {
        return Ok(());
    }
    let mut table = Table::new(&["OUTBOX", "SINK", "DOWN", "SINCE", "ERROR"]);
    for line in lines {
        for down in &line.down {
            table.row(vec![
                line.outbox.clone(),
                down.sink.clone(),
                down.destination.clone(),
                down.since.format("%Y-%m-%d %H:%M:%SZ").to_string(),
                down.error.clone(),
            ]);
        }
    }
    output::print("\n")?;
    table.print()
}

fn print_blocked(lines: &[Line]) -> Result<(), Failure> {
    if lines.iter().all(|line| line.blocked_keys.is_empty()) {
        return Ok(());
    }
    let mut table =
        Table::new(&["OUTBOX", "BLOCKED KEY", "WAITING", "HEAD", "TRIES", "NEXT TRY", "ERROR"]);
    for line in lines {
        for blocked in &line.blocked_keys {
            let key = &blocked.key;
            table.row(vec![
                line.outbox.clone(),
                format!("{} / {}", key.aggregate_type, key.aggregate_id),
                format!("{}{}", number(blocked.waiting), if blocked.more { "+" } else { "" }),
                blocked.head_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
                blocked.retry_count.to_string(),
                match (blocked.parked, blocked.next_retry_at) {
                    (true, _) => "parked".to_owned(),
                    (false, Some(at)) => at.format("%Y-%m-%d %H:%M:%SZ").to_string(),
                    (false, None) => "-".to_owned(),
                },
                blocked.last_error.clone().unwrap_or_default(),
            ]);
        }
    }
    output::print("\n")?;
    table.print()
}
