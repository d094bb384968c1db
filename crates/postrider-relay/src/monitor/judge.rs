//! Decides what raises an alert: samples and thresholds in, verdicts out. Pure: no clock, no store.

use crate::alerts::{Alert, Severity};
use crate::observations::Attempts;
use crate::preset::Thresholds;

/// A rate of fewer attempts than this is not meaningful.
pub const SAMPLES_MIN: u64 = 20;

/// The state of an outbox, taken from its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreSample {
    /// Live events, from the ledger.
    pub pending: i64,
    /// Failed events that wait for another attempt; a lower bound.
    pub failed_rows: i64,
    /// Unresolved dead letters.
    pub unresolved: i64,
}

/// The state of this relay's own attempts on an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttemptSample {
    /// Counts of the last minutes.
    pub attempts: Attempts,
    /// Destinations that are down now.
    pub open: usize,
}

impl AttemptSample {
    /// Returns the share of retries among the attempts; `None` if there are too few.
    pub fn retry_rate(&self) -> Option<f64> {
        self.share(self.attempts.retries)
    }

    /// Returns the share of calls that found the destination up; `None` if there are too few.
    pub fn availability(&self) -> Option<f64> {
        self.share(self.attempts.down).map(|down| 1.0 - down)
    }

    fn share(&self, part: u64) -> Option<f64> {
        let all = self.attempts.all;
        (all >= SAMPLES_MIN).then(|| part as f64 / all as f64)
    }
}

/// The conditions that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Watched {
    /// Live events.
    Pending,
    /// Failed attempts per minute.
    FailedPerMinute,
    /// Failed events that wait for another attempt.
    FailedRows,
    /// Unresolved dead letters.
    Unresolved,
    /// Share of retries.
    RetryRate,
    /// Share of calls that found the destination up.
    Availability,
}

impl Watched {
    /// Conditions taken from the tables: one relay watches them for all.
    pub const OF_STORE: [Self; 3] = [Self::Pending, Self::FailedRows, Self::Unresolved];

    /// Returns the kind of its alerts.
    pub fn kind(self, outbox: &str) -> String {
        let word = match self {
            Self::Pending => "pending",
            Self::FailedPerMinute => "failed-per-minute",
            Self::FailedRows => "failed-rows",
            Self::Unresolved => "unresolved",
            Self::RetryRate => "retry-rate",
            Self::Availability => "availability",
        };
        format!("{word}/{outbox}")
    }

    /// Returns the severity of its alerts.
    pub fn severity(self) -> Severity {
        match self {
            Self::Unresolved | Self::Availability => Severity::Critical,
            _ => Severity::Warning,
        }
    }
}

/// Whether a condition holds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// The condition.
    pub watched: Watched,
    /// Whether it raises an alert now.
    pub holds: bool,
    /// The state in one sentence, whether it holds or not.
    pub title: String,
    /// Names and values.
    pub fields: Vec<(&'static str, String)>,
}

impl Verdict {
    /// Converts the verdict into an alert about an outbox.
    pub fn alert(self, outbox: &str) -> Alert {
        Alert {
            severity: self.watched.severity(),
            kind: self.watched.kind(outbox),
            title: self.title,
            fields: self.fields,
            event: None,
        }
    }
}

/// Judges the tables. A condition that is switched off does not hold.
pub fn judge_store(outbox: &str, sample: &StoreSample, thresholds: &Thresholds) -> Vec<Verdict> {
    let above = |watched, value: i64, what: &str, max: Option<u64>| Verdict {
        watched,
        holds: max.is_some_and(|max| value > signed(max)),
        title: format!("Outbox {outbox} has {value} {what}"),
        fields: fields(value, max),
    };
    let failed = "failed events that wait for another attempt";
    vec![
        above(Watched::Pending, sample.pending, "events waiting", thresholds.pending_max),
        above(Watched::FailedRows, sample.failed_rows, failed, thresholds.failed_rows_max),
        judge_unresolved(outbox, sample.unresolved, thresholds.unresolved_at),
    ]
}

/// Judges the unresolved dead letters alone; this also happens after each move.
pub fn judge_unresolved(outbox: &str, unresolved: i64, at: Option<u64>) -> Verdict {
    Verdict {
        watched: Watched::Unresolved,
        holds: at.is_some_and(|at| unresolved >= signed(at)),
        title: format!("Outbox {outbox} has {unresolved} unresolved dead letters"),
        fields: fields(unresolved, at),
    }
}

/// Judges this relay's attempts. `held` tells whether a condition held at the last check: an outage
/// ends when the destination answers, not because events wait and nothing is sent.
pub fn judge_attempts(
    outbox: &str,
    sample: &AttemptSample,
    thresholds: &Thresholds,
    held: impl Fn(Watched) -> bool,
) -> Vec<Verdict> {
    let AttemptSample { attempts, open } = *sample;
    let failed = attempts.failed_in_minute;
    let per_minute = Verdict {
        watched: Watched::FailedPerMinute,
        holds: thresholds.failed_per_minute_max.is_some_and(|max| failed > max),
        title: format!("Outbox {outbox}: {failed} attempts failed within a minute"),
        fields: fields(failed, thresholds.failed_per_minute_max),
    };
    let rate = sample.retry_rate();
    let retries = Verdict {
        watched: Watched::RetryRate,
        holds: holds(rate, thresholds.retry_rate_max, |rate, max| rate > max),
        title: format!("Outbox {outbox}: {} of the attempts are retries", percent(rate)),
        fields: fields(percent(rate), thresholds.retry_rate_max.map(|max| percent(Some(max)))),
    };
    let up = sample.availability();
    let low = match (thresholds.availability_min, up) {
        (None, _) => false,
        // A destination that is down only gets occasional probes, too few for a rate, but it is
        // known to be down.
        (Some(_), _) if open > 0 => true,
        (Some(min), Some(up)) => up < min,
        (Some(_), None) => held(Watched::Availability) && attempts.down > 0,
    };
    let availability = Verdict {
        watched: Watched::Availability,
        holds: low,
        title: match open {
            0 => format!("Outbox {outbox}: {} of the calls found the destination up", percent(up)),
            open => format!("Outbox {outbox}: destinations that are down: {open}"),
        },
        fields: {
            let min = thresholds.availability_min.map(|min| percent(Some(min)));
            let mut fields = fields(percent(up), min);
            fields.push(("down", open.to_string()));
            fields.push(("calls in 5 minutes", attempts.all.to_string()));
            fields
        },
    };
    vec![per_minute, retries, availability]
}

fn holds(value: Option<f64>, limit: Option<f64>, beyond: fn(f64, f64) -> bool) -> bool {
    value.zip(limit).is_some_and(|(value, limit)| beyond(value, limit))
}

fn fields(
    value: impl std::fmt::Display,
    threshold: Option<impl std::fmt::Display>,
) -> Vec<(&'static str, String)> {
    let threshold = threshold.map_or_else(|| "off".to_owned(), |limit| limit.to_string());
    vec![("value", value.to_string()), ("threshold", threshold)]
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "too few to say".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn attempts(all: u64, retries: u64, down: u64, failed_in_minute: u64) -> AttemptSample {
        let attempts = Attempts { all, retries, down, failed_in_minute };
        AttemptSample { attempts, open: 0 }
    }

    fn of_store(sample: StoreSample, preset: &str) -> Vec<Watched> {
        let thresholds = Preset::by_name(preset).unwrap().alerts;
        let verdicts = judge_store("orders", &sample, &thresholds);
        verdicts.into_iter().filter(|v| v.holds).map(|v| v.watched).collect()
    }

    fn of_attempts(sample: &AttemptSample, preset: &str, held: bool) -> Vec<Watched> {
        let thresholds = Preset::by_name(preset).unwrap().alerts;
        let verdicts = judge_attempts("orders", sample, &thresholds, |_| held);
        verdicts.into_iter().filter(|v| v.holds).map(|v| v.watched).collect()
    }

    /// Checks the table of the specification, line by line, at and beyond each threshold.
    #[test]
    fn presets_alert_at_the_specified_numbers() {
        use Watched::*;
        for (preset, pending_max) in
            [("api-call", 10_000), ("broker", 10_000), ("notification", 1_000), ("handler", 1_000)]
        {
            let pending = |pending| of_store(StoreSample { pending, ..Default::default() }, preset);
            assert_eq!(pending(pending_max), [], "{preset}");
            assert_eq!(pending(pending_max + 1), [Pending], "{preset}");
            let unresolved =
                |unresolved| of_store(StoreSample { unresolved, ..Default::default() }, preset);
            assert_eq!(unresolved(9), [], "{preset}");
            assert_eq!(unresolved(10), [Unresolved], "{preset}");
            let retries = |all, retries| of_attempts(&attempts(all, retries, 0, 0), preset, false);
            assert_eq!(retries(19, 19), [], "{preset}: too few samples");
            assert_eq!(retries(20, 10), [], "{preset}");
            assert_eq!(retries(20, 11), [RetryRate], "{preset}");
            let down = |all, down| of_attempts(&attempts(all, 0, down, 0), preset, false);
            assert_eq!(down(19, 19), [], "{preset}: too few samples");
            assert_eq!(down(100, 5), [], "{preset}");
            assert_eq!(down(100, 6), [Availability], "{preset}");
        }
        let failed = |preset, count| of_attempts(&attempts(0, 0, 0, count), preset, false);
        assert_eq!(failed("api-call", 100), []);
        assert_eq!(failed("api-call", 101), [FailedPerMinute]);
        for preset in ["notification", "handler"] {
            assert_eq!(failed(preset, 10), [], "{preset}");
            assert_eq!(failed(preset, 11), [FailedPerMinute], "{preset}");
        }
        assert_eq!(failed("broker", 1_000_000), [], "counts rows instead");
        let rows = |preset, failed_rows| {
            of_store(StoreSample { failed_rows, ..Default::default() }, preset)
        };
        assert_eq!(rows("broker", 100), []);
        assert_eq!(rows("broker", 101), [FailedRows]);
        assert_eq!(rows("api-call", 1_000_000), [], "counts attempts instead");
    }

    #[test]
    fn severities_are_the_specified_ones() {
        use Watched::*;
        for (watched, severity) in [
            (Pending, Severity::Warning),
            (FailedPerMinute, Severity::Warning),
            (FailedRows, Severity::Warning),
            (Unresolved, Severity::Critical),
            (RetryRate, Severity::Warning),
            (Availability, Severity::Critical),
        ] {
            assert_eq!(watched.severity(), severity, "{watched:?}");
        }
    }

    /// While a destination is down, it gets nothing but an occasional probe.
    #[test]
    fn an_outage_is_not_over_because_nothing_is_sent() {
        let down = |attempts: AttemptSample, held| of_attempts(&attempts, "broker", held);
        let open = AttemptSample { open: 1, ..attempts(5, 0, 5, 0) };
        assert_eq!(down(open, false), [Watched::Availability], "it opened after five calls");
        assert_eq!(down(attempts(5, 0, 5, 0), true), [Watched::Availability], "just closed");
        assert_eq!(down(attempts(5, 0, 0, 0), true), [], "only good answers");
        assert_eq!(down(attempts(40, 0, 1, 0), true), []);
        assert_eq!(down(AttemptSample::default(), true), [], "nothing known, nothing down");
    }

    #[test]
    fn what_is_off_never_holds() {
        let off = Thresholds {
            pending_max: None,
            failed_per_minute_max: None,
            failed_rows_max: None,
            unresolved_at: None,
            retry_rate_max: None,
            availability_min: None,
            ..Thresholds::API_CALL
        };
        let sample = StoreSample { pending: 9, failed_rows: i64::MAX, unresolved: i64::MAX };
        assert!(judge_store("orders", &sample, &off).iter().all(|verdict| !verdict.holds));
        let sample = AttemptSample { open: 3, ..attempts(100, 100, 100, 100) };
        let verdicts = judge_attempts("orders", &sample, &off, |_| true);
        assert!(verdicts.iter().all(|verdict| !verdict.holds), "{verdicts:?}");
    }
}
