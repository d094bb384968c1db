//! Checks of clocks, folders and sinks.

use std::path::Path;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use postrider_relay::{OutboxConfig, delivery::backup};
use postrider_store::{Database, Finding, StoreError};

/// Larger differences between clocks are reported. Nothing depends on them, but people compare logs
/// and tables.
const CLOCK_DIFFERENCE_MAX: TimeDelta = TimeDelta::seconds(2);
/// Time limit for a sink to answer.
const SINK_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) async fn clocks(store: &dyn Database) -> Result<Finding, StoreError> {
    let (sent, started) = (Utc::now(), Instant::now());
    let there = store.clock().await?;
    // The server read its clock on the way: half of the round trip has passed by then.
    let here = sent + TimeDelta::from_std(started.elapsed() / 2).unwrap_or_default();
    Ok(judge_clocks(there - here))
}

fn judge_clocks(difference: TimeDelta) -> Finding {
    let shown = format!("{:+.1} s", difference.num_milliseconds() as f64 / 1_000.0);
    match difference.abs() <= CLOCK_DIFFERENCE_MAX {
        true => Finding::ok("clocks", format!("the database's differs from this one by {shown}")),
        false => Finding::warning(
            "clocks",
            format!("the database's differs from this one by {shown}"),
            "let both follow a time server (NTP): times in logs, backup files and tables do not \
             compare",
        ),
    }
}

/// Checks that the safety net's second level, the backup folder, would work.
pub(super) fn backup_folder(folder: &Path) -> Finding {
    let subject = format!("backup folder {}", folder.display());
    if let Err(error) = backup::check_folder(folder) {
        let fix = "do that, or change `backup_folder` in [relay]: no relay starts with it";
        return Finding::error(subject, error.to_string(), fix);
    }
    match backup::check_writable(folder) {
        Ok(()) => Finding::ok(subject, "can be written"),
        Err(error) => Finding::error(
            subject,
            format!("cannot be written: {error}"),
            "give this user the right to write it, make room, or change `backup_folder` in [relay]",
        ),
    }
}

/// Checks each sink once, even if several outboxes share it.
pub(super) async fn sinks(outboxes: &[OutboxConfig]) -> Vec<Finding> {
    let (mut findings, mut checked) = (Vec::new(), Vec::new());
    for sink in outboxes.iter().map(|outbox| &outbox.sink) {
        if checked.contains(&sink.name()) {
            continue;
        }
        checked.push(sink.name());
        let subject = format!("sink {}", sink.name());
        let fix = "events wait until it can be reached";
        findings.push(match tokio::time::timeout(SINK_TIMEOUT, sink.check()).await {
            Ok(Ok(())) => Finding::ok(subject, "can be reached"),
            Ok(Err(error)) => Finding::error(subject, error.message, fix),
            Err(_) => Finding::error(subject, format!("no answer within {SINK_TIMEOUT:?}"), fix),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_store::Verdict;

    #[test]
    fn clocks_that_differ_are_told_by_how_much() {
        assert_eq!(judge_clocks(TimeDelta::milliseconds(-1_900)).verdict, Verdict::Ok);
        let late = judge_clocks(TimeDelta::seconds(-90));
        assert_eq!(late.verdict, Verdict::Warning);
        assert!(late.finding.contains("-90.0 s"), "{late:?}");
    }
}
