//! The distribution of work among relays.

use std::collections::HashMap;
use std::time::Duration;

use postrider_relay::OutboxConfig;
use postrider_store::{ClaimMode, Database, Finding, Mode, RelayPulse, Share, StoreError};

use crate::config::Built;

pub(super) async fn look(store: &dyn Database, built: &Built) -> Result<Vec<Finding>, StoreError> {
    let live = live_relays(store, built.relay.heartbeat_every).await?;
    let mut findings = vec![relays(&live)];
    let modes: HashMap<String, Mode> = store.modes().await?.into_iter().collect();
    for config in &built.outboxes {
        let mode = modes.get(config.outbox.name()).copied();
        findings.push(claim_mode(config, mode));
        findings.extend(troubled(config, &live));
        if live.is_empty() {
            continue;
        }
        match mode.map(|mode| mode.claim) {
            Some(ClaimMode::Lanes) => {
                let owners = store.lane_owners(&config.outbox).await?.into_iter();
                let owners: Vec<_> = owners.map(|owner| owner.relay_id).collect();
                findings.extend(served_lanes(config, &owners, &live));
            }
            _ => findings.extend(served_shares(config, &live)),
        }
    }
    Ok(findings)
}

/// Returns the live relays: those whose heartbeat advances during two heartbeat intervals.
async fn live_relays(
    store: &dyn Database,
    heartbeat_every: Duration,
) -> Result<Vec<RelayPulse>, StoreError> {
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
        (Some(claim), Some(wanted)) if claim != wanted => Finding::error(
            &subject,
            format!("claim mode `{claim}`, but `{wanted}` is configured: no relay will start"),
            format!("postrider outbox set-claim {name} {wanted}"),
        ),
        (Some(claim), _) => Finding::ok(subject, format!("claim mode `{claim}`")),
        (None, _) => Finding::error(&subject, "is not registered", "run `postrider migrate`"),
    }
}

/// Checks that the live relays together own all lanes.
fn served_lanes(
    outbox: &OutboxConfig,
    owners: &[Option<String>],
    live: &[RelayPulse],
) -> Vec<Finding> {
    let subject = format!("outbox {}", outbox.outbox.name());
    let lives = |owner: &&String| live.iter().any(|relay| relay.relay_id == **owner);
    let free = owners.iter().filter(|owner| owner.as_ref().filter(lives).is_none()).count();
    match (free, serving(outbox, live).is_empty()) {
        (_, true) => vec![no_relay(&subject)],
        (0, false) => Vec::new(),
        (free, false) => vec![Finding::error(
            subject,
            format!("no relay serves {free} of {} lanes: their keys wait", owners.len()),
            "they are taken within seconds while relays join or leave; if it stays, see the log \
             of the relays that serve this outbox",
        )],
    }
}

/// Checks that the live relays together claim all rows.
fn served_shares(outbox: &OutboxConfig, live: &[RelayPulse]) -> Vec<Finding> {
    let subject = format!("outbox {}", outbox.outbox.name());
    let shares = serving(outbox, live);
    if shares.is_empty() {
        return vec![no_relay(&subject)];
    }
    if shares.contains(&Share::WHOLE) {
        return Vec::new();
    }
    let of = shares.iter().map(|share| share.of).max().unwrap_or(1);
    let unserved = (0..of).map(|index| Share { of, index }).filter(|share| !shares.contains(share));
    unserved
        .map(|Share { of, index }| {
            Finding::error(
                &subject,
                format!("no relay serves share {index} of {of}: its rows wait"),
                format!("start a relay with share = {{ of = {of}, index = {index} }}"),
            )
        })
        .collect()
}

/// Finds relays whose work on this outbox keeps failing.
fn troubled(outbox: &OutboxConfig, live: &[RelayPulse]) -> Vec<Finding> {
    let name = outbox.outbox.name();
    let found = live.iter().flat_map(|relay| {
        let of_outbox = relay.serving.iter().filter(|serving| serving.outbox == name);
        of_outbox.filter_map(move |serving| Some((relay, serving.trouble.as_ref()?)))
    });
    let finding = |(relay, trouble): (&RelayPulse, &String)| {
        Finding::error(
            format!("outbox {name}"),
            format!("relay {} makes no progress: {trouble}", relay.relay_id),
            "see the log of that relay; its alert ends when the work succeeds again",
        )
    };
    found.map(finding).collect()
}

fn serving(outbox: &OutboxConfig, live: &[RelayPulse]) -> Vec<Share> {
    let all = live.iter().flat_map(|relay| &relay.serving);
    let of_outbox = all.filter(|serving| serving.outbox == outbox.outbox.name());
    of_outbox.map(|serving| serving.share).collect()
}

fn no_relay(subject: &str) -> Finding {
    let fix = "add it to the configuration of a relay, or start one with this configuration";
    Finding::error(subject, "no live relay works on it", fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use postrider::Outbox;
    use postrider_relay::{Preset, sinks::NullSink};
    use postrider_store::{Serving, Traffic, Verdict};

    fn outbox() -> OutboxConfig {
        let sink = Arc::new(NullSink::new("null"));
        OutboxConfig::new(Outbox::new("orders").unwrap(), Preset::broker(), sink)
    }

    fn relay(id: &str, outbox: &str, share: Share) -> RelayPulse {
        let serving = Serving {
            outbox: outbox.to_owned(),
            epoch: 1,
            share,
            down: Vec::new(),
            traffic: Traffic::default(),
            trouble: None,
        };
        RelayPulse {
            relay_id: id.to_owned(),
            epoch: 1,
            heartbeat: 1,
            fenced: false,
            host: String::new(),
            serving: vec![serving],
            age: Duration::ZERO,
        }
    }

    #[test]
    fn a_relay_whose_work_fails_again_and_again_is_named() {
        let mut live = [relay("a", "orders", Share::WHOLE), relay("b", "orders", Share::WHOLE)];
        assert_eq!(troubled(&outbox(), &live), []);
        live[1].serving[0].trouble = Some("cannot subtract infinite timestamps".to_owned());
        let [finding] = troubled(&outbox(), &live).try_into().unwrap();
        assert_eq!(finding.verdict, Verdict::Error);
        assert!(finding.finding.contains("relay b"), "{finding:?}");
        assert!(finding.finding.contains("cannot subtract infinite timestamps"), "{finding:?}");
    }

    #[test]
    fn lanes_of_nobody_and_of_the_dead_are_found() {
        let live = [relay("a", "orders", Share::WHOLE)];
        let owner = |name: &str| Some(name.to_owned());
        assert_eq!(served_lanes(&outbox(), &[owner("a"), owner("a")], &live), []);
        let owners = [owner("a"), None, owner("dead")];
        let found = served_lanes(&outbox(), &owners, &live);
        assert_eq!(found[0].verdict, Verdict::Error);
        assert!(found[0].finding.contains("2 of 3 lanes"), "{found:?}");
        let others = [relay("a", "transfers", Share::WHOLE)];
        let found = served_lanes(&outbox(), &owners, &others);
        assert!(found[0].finding.contains("no live relay"), "{found:?}");
    }

    #[test]
    fn shares_of_nobody_are_found() {
        let live = [relay("a", "orders", Share { of: 2, index: 1 })];
        let found = served_shares(&outbox(), &live);
        assert_eq!(found.len(), 1);
        assert!(found[0].finding.contains("share 0 of 2"), "{found:?}");
        assert_eq!(served_shares(&outbox(), &[relay("a", "orders", Share::WHOLE)]), []);
    }
}
