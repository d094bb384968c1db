//! Alerts: the first of a kind at once, the rest summed up, and the relay never waits.

use std::time::{Duration, Instant};

use postrider_relay::alert::{Alert, Alerts, Dispatcher, Severity};
use postrider_testkit::eventually;
use postrider_testkit::relay::{RecordedAlerts, held_event};
use tokio::task::JoinHandle;
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
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    fn start(channels: &[&RecordedAlerts], cool_down: Duration) -> Self {
        let channels = channels.iter().map(|channel| channel.boxed()).collect();
        let (alerts, dispatcher) = Dispatcher::new(channels, cool_down);
        let stop = CancellationToken::new();
        Self { alerts, task: tokio::spawn(dispatcher.run(stop.clone())), stop }
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
    // Its own cool-down follows: what comes now is held back again, then told.
    running.alerts.raise(alert("kind", "alert 4"));
    channel.until("alert 4").await;
    running.stop().await;
    assert_eq!(titles(&channel).len(), 3);
}

/// While the cool-down is over and the sum not yet sent, a new alert must not take its place.
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

#[tokio::test]
async fn a_channel_that_fails_is_tried_again_and_holds_up_no_other() {
    let (failing, other) = (RecordedAlerts::new(true), RecordedAlerts::new(false));
    failing.fail(2);
    let running = Running::start(&[&failing, &other], LONG);
    running.alerts.raise(alert("a", "first"));
    failing.until("first").await;
    assert_eq!(failing.tries(), 3, "the third try succeeded");
    other.until("first").await;
    failing.fail(u32::MAX);
    running.alerts.raise(alert("b", "second"));
    other.until("second").await;
    running.stop().await;
    assert_eq!(failing.tries(), 6, "three tries, and no more");
    assert_eq!(titles(&failing), ["first"]);
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

/// A stuck channel: raising returns at once, and what is beyond the queue is dropped, not waited
/// for.
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
    assert_eq!(titles(&channel).len(), 1_001, "the stuck one and a full queue");
}
