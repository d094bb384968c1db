//! Alerts: the first of a kind is sent at once, the rest is combined, and the relay never waits.

use std::sync::Arc;
use std::time::Duration;

use postrider_relay::{
    Backoff,
    alerts::{Alert, AlertRegistry, AlertSettings, Alerts, Dispatcher, MessageState, Severity},
};
use postrider_testkit::{
    eventually,
    relay::{RecordedAlerts, held_event},
};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(3600);

fn alert(kind: &str, title: &str) -> Alert {
    Alert {
        severity: Severity::Critical,
        kind: kind.to_owned(),
        title: title.to_owned(),
        fields: vec![("id", "1".to_owned())],
        event: Some(Box::new(held_event(1))),
    }
}

struct Running {
    alerts: Alerts,
    registry: Arc<AlertRegistry>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(channels: &[&RecordedAlerts], cool_down: Duration) -> Self {
        let channels = channels.iter().map(|channel| channel.subscribed()).collect();
        let wait = Duration::from_millis(5);
        let retry = Backoff { first: wait, factor: 1.0, max: wait, jitter: 0.0 };
        let (alerts, dispatcher) = Dispatcher::new(channels, AlertSettings { cool_down, retry });
        let (stop, registry) = (CancellationToken::new(), Arc::<AlertRegistry>::default());
        let dispatcher = dispatcher.into_registry(Arc::clone(&registry));
        Self { alerts, registry, task: tokio::spawn(dispatcher.run(stop.clone())), stop }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn titles(channel: &RecordedAlerts) -> Vec<String> {
    channel.sent().into_iter().map(|alert| alert.title).collect()
}

#[tokio::test]
async fn the_first_of_a_kind_is_sent_at_once_and_the_rest_is_summed_up() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], LONG);
    for number in 1..=5 {
        running.alerts.raise(alert("dead-letter/a", &format!("dead letter {number}")));
    }
    running.alerts.raise(alert("dead-letter/b", "of another kind"));
    channel.until("of another kind").await;
    assert_eq!(titles(&channel), ["dead letter 1", "of another kind"]);
    running.stop().await;
    let last = titles(&channel).pop();
    assert_eq!(last.as_deref(), Some("dead letter 5 (and 3 more like it)"), "none is forgotten");
}

#[tokio::test]
async fn the_sum_is_sent_when_the_cool_down_ends() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], Duration::from_millis(200));
    for number in 1..=3 {
        running.alerts.raise(alert("kind", &format!("alert {number}")));
    }
    channel.until("alert 3 (and 1 more like it)").await;
    // A new cool-down begins: the next alert is held back again, then sent.
    running.alerts.raise(alert("kind", "alert 4"));
    channel.until("alert 4").await;
    running.stop().await;
    assert_eq!(titles(&channel).len(), 3);
}

/// A new alert between the end of the cool-down and the combined message must not replace it.
#[tokio::test]
async fn an_alert_between_cool_down_and_sum_forgets_none() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], Duration::from_millis(50));
    let mut raised = 0;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(600) {
        raised += 1;
        running.alerts.raise(alert("kind", "alert"));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    running.stop().await;
    let told: u64 = titles(&channel)
        .iter()
        .map(|title| {
            let more = title.split("(and ").nth(1).and_then(|rest| rest.split(' ').next());
            1 + more.map_or(0, |number| number.parse::<u64>().unwrap())
        })
        .sum();
    assert_eq!(told, raised);
}

#[tokio::test]
async fn without_a_cool_down_everything_is_sent() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], Duration::ZERO);
    for number in 1..=5 {
        running.alerts.raise(alert("kind", &format!("alert {number}")));
    }
    channel.until("alert 5").await;
    running.stop().await;
    assert_eq!(titles(&channel).len(), 5);
}

/// The receiver was unreachable: everything is sent when it is back, in order.
#[tokio::test]
async fn a_channel_that_was_away_gets_everything_in_order_and_holds_up_no_other() {
    let (failing, other) = (RecordedAlerts::new(true), RecordedAlerts::new(false));
    failing.fail(u32::MAX);
    let running = Running::start(&[&failing, &other], LONG);
    running.alerts.raise(alert("a", "first"));
    running.alerts.raise(alert("b", "second"));
    other.until("second").await;
    let tried = async || (failing.tries() > 10).then_some(());
    eventually("it is tried again and again", tried).await;
    assert_eq!(titles(&failing), [""; 0]);
    failing.fail(0);
    failing.until("second").await;
    running.stop().await;
    assert_eq!(titles(&failing), ["first", "second"]);
}

#[tokio::test]
async fn a_stop_tries_what_is_left_once_more_and_ends() {
    let (deaf, other) = (RecordedAlerts::new(true), RecordedAlerts::new(true));
    deaf.fail(u32::MAX);
    let running = Running::start(&[&deaf, &other], LONG);
    running.alerts.raise(alert("a", "unheard"));
    eventually("it is tried", async || (deaf.tries() > 0).then_some(())).await;
    running.alerts.raise(alert("b", "raised at the stop"));
    running.stop().await;
    assert_eq!(titles(&deaf), [""; 0]);
    assert_eq!(titles(&other), ["unheard", "raised at the stop"]);
}

#[tokio::test]
async fn a_condition_is_told_when_it_begins_and_when_it_is_over() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], LONG);
    // Called at every check.
    for number in 1..=5 {
        running.alerts.begin(alert("pending/a", &format!("{number} wait")));
    }
    channel.until("1 wait").await;
    let latest = async || {
        let lists = running.registry.lists();
        lists.active.iter().any(|entry| entry.title == "5 wait").then_some(lists)
    };
    let lists = eventually("the registry has the latest", latest).await;
    assert_eq!((lists.active.len(), lists.past.len()), (1, 0));
    for _ in 0..3 {
        running.alerts.end("pending/a", "none wait");
    }
    let over = channel.until_resolved("none wait").await;
    assert_eq!(over.severity, Severity::Critical, "whoever was told of it is told that it is over");
    let lists = running.registry.lists();
    assert_eq!((lists.active.len(), lists.past.len()), (0, 1));
    assert!(lists.past[0].ended_at.is_some_and(|end| end >= lists.past[0].since));
    running.stop().await;
    assert_eq!(titles(&channel), ["1 wait", "none wait"]);
}

#[tokio::test]
async fn what_never_began_is_never_over() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], LONG);
    running.alerts.end("pending/a", "none wait");
    running.alerts.begin(alert("pending/b", "handed over"));
    running.alerts.hand_over("pending/b");
    running.alerts.end("pending/b", "somebody else's");
    running.stop().await;
    assert_eq!(titles(&channel), ["handed over"]);
}

#[tokio::test]
async fn a_condition_that_comes_and_goes_is_summed_up() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], Duration::from_millis(300));
    for _ in 0..4 {
        running.alerts.begin(alert("down/a", "down"));
        running.alerts.end("down/a", "up");
    }
    channel.until("down (came back 3 times and is over)").await;
    running.alerts.begin(alert("down/b", "down too"));
    running.alerts.end("down/b", "up too");
    running.alerts.begin(alert("down/b", "down too"));
    channel.until("down too (began once again)").await;
    running.stop().await;
    let told: Vec<_> = channel.sent().into_iter().map(|m| (m.state, m.count)).collect();
    let (raised, over) = (MessageState::Raised, MessageState::Resolved);
    assert_eq!(told, [(raised, 1), (over, 1), (over, 3), (raised, 1), (over, 1), (raised, 1)]);
}

#[tokio::test]
async fn a_channel_gets_nothing_below_its_severity_and_reports_only_if_it_asks() {
    let pager = RecordedAlerts::new(false).from(Severity::Critical);
    let mailbox = RecordedAlerts::new(false).with_reports();
    let running = Running::start(&[&pager, &mailbox], LONG);
    running.alerts.report(Alert { severity: Severity::Info, ..alert("report", "report") });
    running.alerts.begin(Alert { severity: Severity::Warning, ..alert("a", "warning") });
    running.alerts.end("a", "warning is over");
    running.alerts.raise(Alert { event: None, ..alert("b", "critical") });
    running.stop().await;
    assert_eq!(titles(&pager), ["critical"]);
    assert_eq!(titles(&mailbox), ["report", "warning", "warning is over", "critical"]);
    assert_eq!(mailbox.sent()[0].state, MessageState::Report);
}

#[tokio::test]
async fn the_registry_keeps_the_last_two_hundred_and_counts_repeats() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], LONG);
    let registry = Arc::clone(&running.registry);
    for number in 0..250 {
        running.alerts.raise(alert(&format!("kind {number}"), &format!("alert {number}")));
    }
    running.alerts.raise(alert("kind 249", "once more"));
    running.stop().await;
    let lists = registry.lists();
    assert_eq!((lists.active.len(), lists.past.len()), (0, 200));
    let newest = &lists.past[0];
    assert_eq!((newest.title.as_str(), newest.count), ("once more", 2));
    let json = serde_json::to_value(&lists).unwrap();
    assert_eq!(json["past"][0]["fields"]["id"], "1");
    assert_eq!(json["past"][0]["severity"], "critical");
}

#[tokio::test]
async fn only_channels_that_may_carry_payloads_get_the_event() {
    let (vault, pager) = (RecordedAlerts::new(true), RecordedAlerts::new(false));
    let running = Running::start(&[&vault, &pager], LONG);
    running.alerts.raise(alert("a", "with an event"));
    assert!(vault.until("with an event").await.event.is_some());
    assert!(pager.until("with an event").await.event.is_none());
    running.stop().await;
}

/// With a stuck channel, raising an alert returns at once, and alerts beyond the queue are dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_never_blocks() {
    let channel = RecordedAlerts::new(true);
    channel.shut();
    let running = Running::start(&[&channel], LONG);
    running.alerts.raise(alert("stuck", "stuck"));
    eventually("the channel is stuck", async || (channel.tries() == 1).then_some(())).await;
    let started = Instant::now();
    for number in 0..3_000 {
        running.alerts.raise(alert(&format!("kind {number}"), "more"));
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    channel.open();
    running.stop().await;
    let sent = titles(&channel).len();
    assert!((1..=2_001).contains(&sent), "{sent}: the stuck one and at most two full queues");
}

#[tokio::test]
async fn what_happened_many_times_at_once_is_one_message_that_says_how_often() {
    let channel = RecordedAlerts::new(true);
    let running = Running::start(&[&channel], LONG);
    running.alerts.raise_many(alert("kind", "dead letter"), 1_500);
    let told = channel.until("dead letter (and 1499 more like it)").await;
    assert_eq!(told.count, 1_500);
    running.alerts.raise_many(alert("kind", "dead letter"), 20);
    let counted = async || (running.registry.lists().past[0].count == 1_520).then_some(());
    eventually("the registry counts all of them", counted).await;
    running.stop().await;
    assert_eq!(titles(&channel)[1], "dead letter (and 19 more like it)");
}

/// Neither between the relay and the dispatcher, nor in the queue of an unreachable channel.
#[tokio::test]
async fn a_flood_of_alerts_never_pushes_out_the_only_copy_of_an_event() {
    let channel = RecordedAlerts::new(true);
    channel.fail(u32::MAX);
    let running = Running::start(&[&channel], LONG);
    let flood = |round: u32| {
        for number in 0..1_500 {
            let alert = alert(&format!("kind {round} {number}"), "flood");
            running.alerts.raise(Alert { event: None, ..alert });
        }
    };
    // All at once, so that the dispatcher is too late for most of it; later rounds fill the
    // channel's queue.
    for round in 0..3 {
        flood(round);
        running.alerts.raise(alert(&format!("critical/{round}"), &format!("copy {round}")));
        let noted = async || {
            let past = running.registry.lists().past;
            past.iter().any(|entry| entry.kind.starts_with(&format!("kind {round} "))).then_some(())
        };
        eventually("the dispatcher is at work", noted).await;
    }
    channel.fail(0);
    for round in 0..3 {
        channel.until(&format!("copy {round}")).await;
    }
    running.stop().await;
}
