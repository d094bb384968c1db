//! `postrider doctor`: what stands between the events and their destinations.

use std::collections::HashMap;
use std::time::Duration;

use postrider::store::{ClaimMode, Mode, RelayPulse, SchemaState, Share};
use postrider_relay::OutboxConfig;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::commands::{Context, Failure, connect};
use crate::config::without_password;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Wrong,
}

/// One line.
#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    subject: String,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Finding {
    fn ok(subject: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, subject: subject.into(), finding: finding.into(), cure: None }
    }

    fn warning(subject: &str, finding: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, cure: Some(cure.into()), ..Self::ok(subject, finding) }
    }

    fn wrong(subject: &str, finding: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::warning(subject, finding, cure) }
    }
}

pub(crate) async fn doctor(context: &Context, args: &DoctorArgs) -> Result<(), Failure> {
    let findings = examine(context).await?;
    if args.json {
        output::print_json(&findings)?;
    } else {
        let lines: String = findings.iter().map(line).collect();
        output::print(&lines)?;
    }
    let wrong = findings.iter().filter(|finding| finding.verdict == Verdict::Wrong).count();
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::Partly(format!("{wrong} of {} findings are wrong", findings.len()))),
    }
}

fn line(finding: &Finding) -> String {
    let sign = match finding.verdict {
        Verdict::Ok => "ok     ",
        Verdict::Warning => "warning",
        Verdict::Wrong => "WRONG  ",
    };
    let cure = finding.cure.as_ref().map_or_else(String::new, |cure| format!("\n         {cure}"));
    format!("{sign}  {}: {}{cure}\n", finding.subject, finding.finding)
}

async fn examine(context: &Context) -> Result<Vec<Finding>, Failure> {
    let config = context.load()?;
    let (url, connections_max) =
        (config.store.url.expose().to_owned(), config.store.connections_max);
    let built = config.build()?;
    let shown = without_password(&url);
    let store = match connect(&url, connections_max, false).await {
        Ok(store) => store,
        Err(error) => {
            let cure = "check `url` in [store], and that the database runs and lets this user in";
            return Ok(vec![Finding::wrong(&format!("store {shown}"), error.to_string(), cure)]);
        }
    };
    let facts = store.server_facts().await?;
    let mut findings = vec![Finding::ok(format!("store {shown}"), facts.version)];
    let outboxes: Vec<_> = built.outboxes.iter().map(|o| o.outbox.clone()).collect();
    match store.schema_state(&outboxes).await? {
        SchemaState::Ready => findings.push(Finding::ok("tables", "there, and of this version")),
        SchemaState::NeedsMigration(what) => {
            findings.push(Finding::wrong("tables", what, "run `postrider migrate`"));
            return Ok(findings);
        }
        SchemaState::TooNew(what) => {
            findings.push(Finding::wrong("tables", what, "install a newer postrider"));
            return Ok(findings);
        }
    }
    let live = live_relays(store.as_ref(), built.relay.heartbeat_every).await?;
    findings.push(relays(&live));
    let modes: HashMap<String, Mode> = store.modes().await?.into_iter().collect();
    for outbox in &built.outboxes {
        let mode = modes.get(outbox.outbox.name()).copied();
        findings.push(claim_mode(outbox, mode));
        findings.extend(served(outbox, mode, &live));
    }
    let mut checked = Vec::new();
    for sink in built.outboxes.iter().map(|outbox| &outbox.sink) {
        if checked.contains(&sink.name()) {
            continue;
        }
        checked.push(sink.name());
        let subject = format!("sink {}", sink.name());
        findings.push(match sink.check().await {
            Ok(()) => Finding::ok(subject, "can be reached"),
            Err(error) => {
                Finding::wrong(&subject, error.message, "events wait until it can be reached")
            }
        });
    }
    Ok(findings)
}

/// A relay lives if its heartbeat moves while one looks.
async fn live_relays(
    store: &dyn postrider::store::Database,
    heartbeat_every: Duration,
) -> Result<Vec<RelayPulse>, Failure> {
    let before = store.relays().await?;
    if before.is_empty() {
        return Ok(before);
    }
    tokio::time::sleep(heartbeat_every * 2).await;
    let moved = |pulse: &RelayPulse| {
        let earlier = before.iter().find(|earlier| earlier.relay_id == pulse.relay_id);
        !pulse.fenced && earlier.is_none_or(|earlier| earlier.heartbeat != pulse.heartbeat)
    };
    Ok(store.relays().await?.into_iter().filter(moved).collect())
}

fn relays(live: &[RelayPulse]) -> Finding {
    match live {
        [] => Finding::warning("relays", "none is running", "start one: `postrider run`"),
        live => {
            let hosts: Vec<&str> = live.iter().map(|relay| relay.host.as_str()).collect();
            Finding::ok("relays", format!("{} alive: {}", live.len(), hosts.join(", ")))
        }
    }
}

fn claim_mode(outbox: &OutboxConfig, mode: Option<Mode>) -> Finding {
    let name = outbox.outbox.name();
    let subject = format!("outbox {name}");
    match (mode.map(|mode| mode.claim), outbox.claim) {
        (Some(claim), Some(wanted)) if claim != wanted => Finding::wrong(
            &subject,
            format!("claim mode `{claim}`, but `{wanted}` is configured: no relay will start"),
            format!("postrider outbox set-claim {name} {wanted}"),
        ),
        (Some(claim), _) => Finding::ok(subject, format!("claim mode `{claim}`")),
        (None, _) => Finding::wrong(&subject, "is not registered", "run `postrider migrate`"),
    }
}

/// Whether the live relays, between them, take all rows.
fn served(outbox: &OutboxConfig, mode: Option<Mode>, live: &[RelayPulse]) -> Vec<Finding> {
    let name = outbox.outbox.name();
    let subject = format!("outbox {name}");
    let of_outbox = live.iter().flat_map(|relay| &relay.serving);
    let shares: Vec<Share> =
        of_outbox.filter(|serving| serving.outbox == name).map(|serving| serving.share).collect();
    if live.is_empty() {
        return Vec::new();
    }
    if shares.is_empty() {
        let cure = "add it to the configuration of a relay, or start one with this configuration";
        return vec![Finding::wrong(&subject, "no live relay works on it", cure)];
    }
    let lanes = mode.is_some_and(|mode| mode.claim == ClaimMode::Lanes);
    if lanes || shares.contains(&Share::WHOLE) {
        return Vec::new();
    }
    let of = shares.iter().map(|share| share.of).max().unwrap_or(1);
    let unserved = (0..of).map(|index| Share { of, index }).filter(|share| !shares.contains(share));
    unserved
        .map(|Share { of, index }| {
            Finding::wrong(
                &subject,
                format!("nobody serves share {index} of {of}: its rows wait"),
                format!("start a relay with share = {{ of = {of}, index = {index} }}"),
            )
        })
        .collect()
}
