//! What the dashboard and the alert rules ask for is what the daemon emits, and all of that is
//! documented.

use std::collections::BTreeSet;

use postrider_testkit::{Answer, HttpTarget, Installation, eventually, metrics::Metrics};
use serde_json::Value;

use crate::scene::BINARY;

const DASHBOARD: &str = include_str!("../../../../grafana/postrider.json");
const RULES: &str = include_str!("../../../../grafana/alerts.yml");
const OPERATIONS: &str = include_str!("../../../../docs/operations.md");
/// Labels that Prometheus adds by itself.
const PROMETHEUS: [&str; 3] = ["instance", "job", "le"];

/// A metric in an expression, with the labels that it must have.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    metric: String,
    labels: BTreeSet<String>,
}

fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut found: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let rules = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    found.extend(rules.map(str::to_owned));
    assert!(found.len() > 50, "{} expressions found", found.len());
    found
}

/// The metrics of an expression; its `by (…)` and `{…=…}` name labels.
fn uses(expression: &str) -> Vec<Use> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let grouped = grouped.flat_map(|list| list.split(',')).map(str::trim);
    let grouped: BTreeSet<String> =
        grouped.filter(|label| !PROMETHEUS.contains(label)).map(str::to_owned).collect();
    let starts = expression.match_indices("postrider_").map(|(at, _)| &expression[at..]);
    starts
        .map(|rest| {
            let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
            let mut labels = grouped.clone();
            if let Some(selector) = rest[end..].strip_prefix('{') {
                let selector = selector.split('}').next().unwrap();
                let names = selector.split(',').filter_map(|part| part.split(['=', '!']).next());
                labels.extend(names.map(|name| name.trim().to_owned()));
            }
            Use { metric: rest[..end].to_owned(), labels }
        })
        .collect()
}

#[test]
fn expressions_are_understood() {
    let found = uses(r#"sum by (le, sink) (rate(postrider_a_bucket{outbox=~"$outbox"}[5m]))"#);
    let labels = ["outbox", "sink"].map(str::to_owned).into();
    assert_eq!(found, [Use { metric: "postrider_a_bucket".to_owned(), labels }]);
}

fn configuration(target: &HttpTarget, people: &HttpTarget, collector: &HttpTarget) -> String {
    format!(
        "[server]\nlisten = '127.0.0.1:0'\n\
         [relay]\nfold_every = '200ms'\nmonitor_every = '200ms'\nreport_every = '0s'\n\
         [telemetry]\notlp_endpoint = '{}'\n\
         [[outbox]]\nname = 'orders'\npreset = 'broker'\nsink = 'api'\nidle_poll = '50ms'\n\
         backoff_first = '50ms'\nmax_retries = 2\n\
         [[outbox]]\nname = 'transfers'\npreset = 'broker'\nclaim = 'lanes'\nsink = 'api'\n\
         idle_poll = '50ms'\n\
         [[sink]]\nname = 'api'\nkind = 'http'\nurl = '{}/{{event_type}}'\n\
         [[alert]]\nkind = 'webhook'\nurl = '{}/alerts'\n",
        collector.url(),
        target.url(),
        people.url()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_and_label_of_dashboard_and_rules_is_emitted_and_documented() {
    let (target, people, collector) =
        (HttpTarget::start().await, HttpTarget::start().await, HttpTarget::start().await);
    target.answer_by(|request| match request.path.as_str() {
        "/Bad" => Answer::status(422),
        "/Late" => Answer::status(404),
        _ => Answer::ok(),
    });
    let site = Installation::new(BINARY, &configuration(&target, &people, &collector));
    let daemon = site.start().await;
    // A series that begins with its first event has no increase then: each is there before.
    let increases = RULES.split("increase(").skip(1).filter(|rest| rest.starts_with("postrider_"));
    let counted: Vec<Use> =
        increases.flat_map(|rest| uses(rest.split('[').next().unwrap())).collect();
    assert!(counted.len() > 5, "{counted:?}");
    eventually("the counters of the rules stand at 0", async || {
        let metrics = daemon.metrics().await;
        let names = metrics.names();
        counted.iter().all(|used| names.contains(used.metric.as_str())).then_some(())
    })
    .await;
    for outbox in ["orders", "transfers"] {
        for event_type in ["Good", "Bad", "Late"] {
            let body = format!(
                "{{\"aggregate_type\":\"order\",\"aggregate_id\":\"1\",\
                 \"event_type\":\"{event_type}\",\"payload\":{{}}}}"
            );
            let path = format!("/api/v1/outboxes/{outbox}/events");
            assert_eq!(daemon.post(&path, &body).await.status, 201);
        }
    }
    daemon.shows("postrider_outbox_failed_total", &[("outbox", "orders")], 3.0).await;
    daemon.reaches("postrider_spans_total", 1.0).await;
    let wanted: BTreeSet<Use> = expressions().iter().flat_map(|e| uses(e)).collect();
    let missing = |metrics: &Metrics| -> Vec<String> {
        let names = metrics.names();
        let lacks = wanted.iter().filter(|used| {
            let there = metrics.labels(&used.metric);
            !names.contains(used.metric.as_str())
                || !used.labels.iter().all(|label| there.contains(label.as_str()))
        });
        lacks.map(|used| format!("{used:?}")).collect()
    };
    eventually("the daemon emits all of them", async || {
        let lacks = missing(&daemon.metrics().await);
        eprintln!("not emitted yet: {lacks:#?}");
        lacks.is_empty().then_some(())
    })
    .await;
    let metrics = daemon.metrics().await;
    for name in metrics.names() {
        let plain = ["_bucket", "_sum", "_count"];
        let plain = plain.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        let documented = OPERATIONS.contains(&format!("`{plain}`"));
        assert!(documented, "docs/operations.md lacks {name}");
    }
    let text = daemon.get("/metrics").await.unwrap().body;
    for name in ["claim", "deliver", "settle", "end_to_end"] {
        let typed = format!("# TYPE postrider_{name}_seconds histogram");
        assert!(text.contains(&typed), "{typed}");
    }
    daemon.stop().await;
}
