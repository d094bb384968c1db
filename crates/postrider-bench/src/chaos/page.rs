//! The report: one page that needs no network.

use std::fmt::Write;

use postrider_command::output::number;

use super::plot::{Plot, STYLE, escape};
use super::samples::Sample;
use super::verdict::Verdict;

/// Renders the page of one run.
pub(super) fn page(verdict: &Verdict, samples: &[Sample]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <title>postrider chaos n19</title>\
         <style>{STYLE}</style><h1>{} calls, an outage, and back</h1>",
        number(verdict.events)
    );
    let _ = write!(
        html,
        "<p>{} events/s in the recovery, {:.0} % of what the same API took from a bare client loop \
         ({} calls/s). {}, batches of {}, {} requests at once; times are {}× compressed.</p>",
        number(verdict.events_per_s as i128),
        verdict.ratio * 100.0,
        number(verdict.limit_events_per_s as i128),
        escape(&verdict.facts.server),
        verdict.batch,
        verdict.concurrency,
        verdict.scale,
    );
    targets(&mut html, verdict);
    figures(&mut html, verdict);
    let from_s = samples.first().map_or(0.0, |sample| sample.at_s);
    let until_s = samples.last().map_or(1.0, |sample| sample.at_s);
    let mut plot = Plot::new(from_s, until_s);
    plot.shade("outage", from_s + verdict.outage_s);
    let backlog: Vec<_> = samples.iter().map(|s| (s.at_s, s.backlog as f64)).collect();
    plot.line(&mut html, "Backlog (events)", &backlog);
    plot.line(&mut html, "Delivered (events/s)", &rates(samples));
    let open = samples.windows(2).filter(|pair| pair[0].open);
    plot.band(&mut html, "Breaker open", open.map(|pair| (pair[0].at_s, pair[1].at_s)));
    html.push_str("</html>\n");
    html
}

fn targets(html: &mut String, verdict: &Verdict) {
    html.push_str("<h2>Targets</h2><table>");
    for target in &verdict.targets {
        let class = if target.passed { "pass" } else { "fail" };
        let _ = write!(
            html,
            "<tr><td>{}<td>{}<td class=\"{class}\">{class}",
            target.target,
            escape(&target.measured)
        );
    }
    html.push_str("</table>");
}

fn figures(html: &mut String, verdict: &Verdict) {
    html.push_str("<h2>Figures</h2><table>");
    for (name, value) in [
        ("events", number(verdict.events)),
        ("delivered", number(verdict.delivered)),
        ("dead", number(verdict.dead)),
        ("pending", number(verdict.pending)),
        ("lost", number(verdict.lost)),
        ("duplicates", number(verdict.duplicates)),
        ("outage", format!("{:.1} s", verdict.outage_s)),
        ("recovery", format!("{:.1} s", verdict.recovery_s)),
        ("requests while it was down", number(verdict.requests_during_outage)),
    ] {
        let _ = write!(html, "<tr><td>{name}<td>{value}");
    }
    html.push_str("</table>");
}

/// Returns the rate between each two successive samples.
fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let rate = |pair: &[Sample]| {
        let passed = (pair[1].at_s - pair[0].at_s).max(0.001);
        (pair[1].at_s, pair[1].delivered.saturating_sub(pair[0].delivered) as f64 / passed)
    };
    samples.windows(2).map(rate).collect()
}
