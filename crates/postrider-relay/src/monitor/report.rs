//! The report: the state of an outbox in a few lines.

use postrider_store::{Composition, Statistics};

use crate::alerts::{Alert, Severity};

/// Lines of a list that are shown; the rest is combined.
const LINES_MAX: usize = 20;

/// Builds the report of an outbox.
pub(super) fn report(outbox: &str, statistics: &Statistics, composition: &Composition) -> Alert {
    let oldest = statistics.oldest_age_s.map_or_else(|| "none".to_owned(), |s| format!("{s} s"));
    let states = composition.live.iter();
    let states = states.map(|s| (format!("{} {}", s.event_type, s.status), s.count));
    let live = list(states.collect(), composition.live_exact, "of the oldest");
    let dead =
        list(composition.dead_letters.clone(), composition.dead_letters_exact, "of the newest");
    Alert {
        severity: Severity::Info,
        kind: format!("report/{outbox}"),
        title: format!("Outbox {outbox}: {} waiting", statistics.pending),
        fields: vec![
            ("waiting", statistics.pending.to_string()),
            ("by type and state", live),
            ("oldest", oldest),
            ("delivered in all", statistics.delivered.to_string()),
            ("dead letters in all", statistics.dead.to_string()),
            ("unresolved", statistics.unresolved.to_string()),
            ("unresolved by type", dead),
        ],
        event: None,
    }
}

fn list(mut counts: Vec<(String, i64)>, exact: bool, part: &str) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.sort_by(|(a, many), (b, more)| more.cmp(many).then(a.cmp(b)));
    let rest: i64 = counts.iter().skip(LINES_MAX).map(|(_, count)| count).sum();
    let total: i64 = counts.iter().map(|(_, count)| count).sum();
    let shown = counts.iter().take(LINES_MAX).map(|(name, count)| format!("{name} {count}"));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if rest > 0 {
        text.push_str(&format!(", others {rest}"));
    }
    match exact {
        true => text,
        false => format!("{text} ({part} {total})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_summed_up_and_parts_say_so() {
        let counts: Vec<_> = (1..=25).map(|n| (format!("T{n:02}"), n)).collect();
        let text = list(counts, false, "of the oldest");
        assert!(text.starts_with("T25 25, T24 24, "), "{text}");
        assert!(text.ends_with(", T06 6, others 15 (of the oldest 325)"), "{text}");
        assert_eq!(list(vec![("A".to_owned(), 2)], true, ""), "A 2");
        assert_eq!(list(Vec::new(), true, ""), "none");
    }
}
