//! The report: one page that opens without a network.

use std::fmt::Write;

use super::samples::Sample;
use super::verdict::Verdict;
use crate::output::number;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#1c2430;background:#fff}table{border-collapse:collapse}td,th{text-align:left;padding:.2rem 1rem .2rem 0}\
.pass{color:#17723b}.fail{color:#b3261e;font-weight:700}svg{width:100%;height:auto}text{font-size:12px;fill:#5b6573}\
.axis{stroke:#c9d0d9}.line{fill:none;stroke:#2457c5;stroke-width:2}.outage{fill:#fbe3e1}.open{fill:#d9644a}\
@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}text{fill:#9aa5b4}.axis{stroke:#3a4452}\
.line{stroke:#7aa2ff}.outage{fill:#3a2222}.pass{color:#6fd08c}.fail{color:#ff8a80}}";

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 190.0;
const TOP: f64 = 20.0;

/// The page of one run.
pub(super) fn page(verdict: &Verdict, samples: &[Sample]) -> String {
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>postrider chaos n19</title>\
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
    let plot = Plot::new(samples, verdict.outage_s);
    let backlog: Vec<_> = samples.iter().map(|s| (s.at_s, s.backlog as f64)).collect();
    plot.line(&mut html, "Backlog (events)", &backlog);
    plot.line(&mut html, "Delivered (events/s)", &rates(samples));
    plot.band(&mut html, "Breaker open", samples);
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

/// From one look to the next.
fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let rate = |pair: &[Sample]| {
        let passed = (pair[1].at_s - pair[0].at_s).max(0.001);
        (pair[1].at_s, pair[1].delivered.saturating_sub(pair[0].delivered) as f64 / passed)
    };
    samples.windows(2).map(rate).collect()
}

/// Where things are drawn: seconds to the right, from the start of the run.
struct Plot {
    from_s: f64,
    until_s: f64,
    outage_s: f64,
}

impl Plot {
    fn new(samples: &[Sample], outage_s: f64) -> Self {
        let from_s = samples.first().map_or(0.0, |sample| sample.at_s);
        let until_s = samples.last().map_or(1.0, |sample| sample.at_s).max(from_s + 0.001);
        Self { from_s, until_s, outage_s }
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + (at_s - self.from_s) / (self.until_s - self.from_s) * (WIDTH - LEFT - 10.0)
    }

    fn open(&self, html: &mut String, title: &str, height: f64) {
        let bottom = height - HEIGHT + BOTTOM;
        let _ = write!(
            html,
            "<h2>{title}</h2><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <rect class=\"outage\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <text x=\"{:.1}\" y=\"14\">outage</text>\
             <line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{bottom}\" y2=\"{bottom}\"/>",
            self.x(self.from_s + self.outage_s) - LEFT,
            bottom - TOP,
            LEFT + 4.0,
        );
        for tick in 0..=5 {
            let at_s = self.from_s + (self.until_s - self.from_s) * f64::from(tick) / 5.0;
            let _ = write!(
                html,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0} s</text>",
                self.x(at_s),
                bottom + 18.0,
                at_s - self.from_s
            );
        }
    }

    fn line(&self, html: &mut String, title: &str, points: &[(f64, f64)]) {
        self.open(html, title, HEIGHT);
        let max = points.iter().map(|(_, y)| *y).fold(1.0, f64::max);
        let y = |value: f64| BOTTOM - value / max * (BOTTOM - TOP);
        for share in [0.0, 0.5, 1.0] {
            let _ = write!(
                html,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y(max * share) + 4.0,
                number((max * share) as i128)
            );
        }
        html.push_str("<polyline class=\"line\" points=\"");
        for (at_s, value) in points {
            let _ = write!(html, "{:.1},{:.1} ", self.x(*at_s), y(*value));
        }
        html.push_str("\"/></svg>");
    }

    fn band(&self, html: &mut String, title: &str, samples: &[Sample]) {
        self.open(html, title, 80.0);
        for pair in samples.windows(2).filter(|pair| pair[0].open) {
            let (from, until) = (self.x(pair[0].at_s), self.x(pair[1].at_s));
            let width = until - from;
            let _ = write!(
                html,
                "<rect class=\"open\" x=\"{from:.1}\" y=\"28\" width=\"{width:.1}\" height=\"16\"/>"
            );
        }
        html.push_str("</svg>");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
