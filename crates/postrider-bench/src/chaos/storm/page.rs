//! The report: one page that needs no network.

use std::fmt::Write;

use postrider_command::output::number;

use super::super::plot::{Plot, STYLE, escape};
use super::run::{Sample, Samples};
use super::verdict::{Verdict, word};

/// Renders the page of one run.
pub(super) fn page(verdict: &Verdict, samples: &Samples) -> String {
    let (settings, outcome) = (&verdict.settings, &verdict.outcome);
    let (class, all) = match verdict.passed {
        true => ("pass", "All promises were kept"),
        false => ("fail", "A promise was broken"),
    };
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>postrider chaos storm</title>\
         <style>{STYLE}</style><h1>{} kills: <span class=\"{class}\">{all}</span></h1>",
        number(outcome.kills)
    );
    let _ = write!(
        html,
        "<p>{} relays in claim mode <code>{}</code> delivered {} events, appended at {} a second \
         to {} keys, to a receiver by {}. In {:.0} s they were killed with SIGKILL {} times and \
         started again; sessions of theirs with the database were cut, and the receiver hung, \
         reset connections, answered late and refused. After the last kill the faults ended, and \
         the outbox was drained {:.1} s later.</p>",
        settings.relays,
        settings.claim,
        number(verdict.findings.delivered),
        number(settings.rate),
        number(settings.keys),
        settings.sink,
        outcome.storm_s,
        number(outcome.kills),
        outcome.recovery_s,
    );
    promises(&mut html, verdict);
    plots(&mut html, samples);
    table(&mut html, "Figures", verdict.figures().into_iter());
    let facts = &verdict.facts;
    let facts = [
        ("command", facts.command.clone()),
        ("measured at", facts.measured_at.clone()),
        ("postrider", format!("{} ({} build)", facts.postrider, facts.build)),
        ("store", facts.server.clone()),
        ("machine", format!("{} cores, {}", facts.machine.cores, facts.machine.cpu)),
        ("lease, heartbeat", format!("{} s, {} s", settings.lease_s, settings.heartbeat_s)),
    ];
    table(&mut html, "How it was measured", facts.into_iter());
    html.push_str("</html>\n");
    html
}

fn promises(html: &mut String, verdict: &Verdict) {
    html.push_str("<h2>Promises</h2><table>");
    for promise in &verdict.promises {
        let class = match promise.passed {
            Some(true) => "pass",
            Some(false) => "fail",
            None => "",
        };
        let _ = write!(
            html,
            "<tr><td>{}<td>{}<td class=\"{class}\">{}",
            escape(promise.promise),
            escape(&promise.measured),
            word(promise.passed)
        );
    }
    html.push_str("</table>");
    if verdict.findings.examples.is_empty() {
        return;
    }
    html.push_str("<h2>Faults</h2><ul>");
    for example in &verdict.findings.examples {
        let _ = write!(html, "<li class=\"fail\">{}", escape(example));
    }
    html.push_str("</ul>");
}

fn plots(html: &mut String, samples: &Samples) {
    let until_s = samples.taken.last().map_or(1.0, |sample| sample.at_s);
    let mut plot = Plot::new(0.0, until_s);
    plot.shade("storm", samples.calm_s);
    plot.mark(&samples.kills);
    let backlog: Vec<_> =
        samples.taken.iter().map(|sample| (sample.at_s, sample.backlog as f64)).collect();
    plot.line(html, "Backlog (events)", &backlog);
    plot.line(html, "Delivered (events/s)", &rates(&samples.taken));
    html.push_str("<p class=\"note\">Each mark on the time axis is a kill.</p>");
}

/// Returns the rate between each two successive samples.
fn rates(samples: &[Sample]) -> Vec<(f64, f64)> {
    let rate = |pair: &[Sample]| {
        // Two samples in quick succession at the end would give a meaningless rate.
        let passed = (pair[1].at_s - pair[0].at_s).max(0.1);
        (pair[1].at_s, pair[1].delivered.saturating_sub(pair[0].delivered) as f64 / passed)
    };
    samples.windows(2).map(rate).collect()
}

fn table<'a>(html: &mut String, title: &str, rows: impl Iterator<Item = (&'a str, String)>) {
    let _ = write!(html, "<h2>{title}</h2><table>");
    for (name, value) in rows {
        let _ = write!(html, "<tr><td>{}<td>{}", escape(name), escape(&value));
    }
    html.push_str("</table>");
}
