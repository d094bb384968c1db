//! Messages to Discord and Slack, and their rate limits.

use std::time::Duration;

use postrider_relay::{
    Batch, Outcome, RouteSettings, Sink,
    sinks::{ChatSettings, ChatSink},
};
use postrider_store::Event;
use postrider_testkit::{
    http::{Receiver, Reply, Request},
    relay::held_event,
};
use serde_json::{Value, json};
use tokio::time::Instant;

async fn deliver(sink: &ChatSink, events: &[Event]) -> Vec<Outcome> {
    sink.deliver(Batch::new(events, Instant::now() + Duration::from_secs(30))).await
}

fn sent(request: &Request) -> Value {
    serde_json::from_str(&request.body).unwrap()
}

fn full(status: u16, headers: &[(&'static str, &str)], body: Value) -> Reply {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Reply::Full(status, headers, body.to_string())
}

#[tokio::test]
async fn the_usual_text_says_what_happened_to_whom() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let event = Event {
        headers: Some(r#"{"x-internal":"hush"}"#.to_owned()),
        payload: r#"{"note":"<!channel> & @everyone"}"#.to_owned(),
        ..held_event(1)
    };
    let settings = |url: &str| ChatSettings::new("team", receiver.url(url));
    for sink in [ChatSink::discord(settings("/discord")), ChatSink::slack(settings("/slack"))] {
        let outcomes = deliver(&sink.unwrap(), std::slice::from_ref(&event)).await;
        assert_eq!(outcomes, [Outcome::Delivered]);
    }
    let received = receiver.received();
    let [discord, slack] = received.requests.as_slice() else { panic!("two requests") };
    assert_eq!(discord.target, "/discord?wait=true", "Discord confirms only if it is asked to");
    let wanted =
        "**OrderPlaced** order order-1\n```json\n{\"note\":\"<!channel> & @everyone\"}\n```";
    assert_eq!(sent(discord), json!({ "content": wanted, "allowed_mentions": { "parse": [] } }));
    let wanted =
        "*OrderPlaced* order order-1\n```{\"note\":\"&lt;!channel&gt; &amp; @everyone\"}```";
    assert_eq!((slack.target.as_str(), sent(slack)), ("/slack", json!({ "text": wanted })));
    for request in [discord, slack] {
        assert_eq!(request.header("content-type"), ["application/json"]);
        assert!(request.header("x-internal").is_empty(), "headers are not for strangers");
        assert!(request.header("postrider-event-id").is_empty());
    }
}

/// Text outside of the block would be formatted, and would look like the sink's own words.
#[tokio::test]
async fn a_payload_does_not_leave_its_block_of_code() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let settings = |url: &str| ChatSettings::new("team", receiver.url(url));
    for (number, backticks) in (1..).zip(["```", "````", "`````", "``` ```", "``````"]) {
        let payload = format!("{{\"note\":\"{backticks}\\n# Pay here\"}}");
        let event = [Event { payload, ..held_event(number) }];
        for sink in [ChatSink::discord(settings("/d")), ChatSink::slack(settings("/s"))] {
            assert_eq!(deliver(&sink.unwrap(), &event).await, [Outcome::Delivered]);
        }
    }
    // A truncated text keeps the closing fence: without it, there is no block.
    let long = [
        Event { payload: format!("{}\n# Pay here", "`".repeat(1_400)), ..held_event(8) },
        Event {
            event_type: "x".repeat(200),
            aggregate_id: "y".repeat(255),
            payload: "# Pay here\n".repeat(200),
            ..held_event(9)
        },
    ];
    let discord = ChatSink::discord(settings("/d")).unwrap();
    assert_eq!(deliver(&discord, &long).await, [Outcome::Delivered, Outcome::Delivered]);
    for request in &receiver.received().requests {
        let sent = sent(request);
        let text = sent["content"].as_str().or(sent["text"].as_str()).unwrap();
        assert_eq!(text.matches("```").count(), 2, "{text}");
        assert!(text.ends_with("```"), "{text}");
        assert!(text.chars().count() <= 2_000, "{text}");
    }
}

#[tokio::test]
async fn texts_and_bodies_are_templates_and_routes_choose_the_webhook() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let text = Some(format!("Order {{{{ payload.order }}}}: {}", "x".repeat(3_000)));
    let routes = vec![RouteSettings {
        filter: Some("payload.order == 2".to_owned()),
        to: receiver.url("/two"),
        ..RouteSettings::default()
    }];
    let url = receiver.url("/all?thread_id=5");
    let sink = ChatSettings { text, routes, ..ChatSettings::new("team", url.clone()) };
    let sink = ChatSink::discord(sink).unwrap();
    let lacking = Event { payload: "{}".to_owned(), ..held_event(3) };
    let outcomes = deliver(&sink, &[held_event(1), held_event(2), lacking]).await;
    assert_eq!(outcomes[..2], [Outcome::Delivered, Outcome::Delivered]);
    assert!(
        matches!(&outcomes[2], Outcome::CannotEncode { error } if error.contains("payload.order"))
    );
    let body = Some(r#"{"embeds": [{"title": {{ event_type }}}]}"#.to_owned());
    let sink = ChatSink::discord(ChatSettings { body, ..ChatSettings::new("team", url) }).unwrap();
    assert_eq!(deliver(&sink, &[held_event(4)]).await, [Outcome::Delivered]);
    let received = receiver.received();
    let at = |target: &'static str| received.requests.iter().filter(move |r| r.target == target);
    let all: Vec<_> = at("/all?thread_id=5&wait=true").map(sent).collect();
    let content = all[0]["content"].as_str().unwrap();
    assert!(content.starts_with("Order 1: xxx") && content.ends_with('…'), "{content}");
    assert_eq!(content.chars().count(), 2_000, "what Discord takes");
    assert_eq!(all[1], json!({ "embeds": [{ "title": "OrderPlaced" }] }));
    assert_eq!(at("/two?wait=true").count(), 1);
}

#[tokio::test]
async fn answers_mean_what_the_specification_says() {
    for (status, wanted) in
        [(400, "Rejected"), (404, "Retry"), (410, "Rejected"), (401, "Down"), (500, "Down")]
    {
        let receiver = Receiver::start(move |_| Reply::Status(status)).await;
        let sink = ChatSink::slack(ChatSettings::new("team", receiver.url("/"))).unwrap();
        let outcome = deliver(&sink, &[held_event(1)]).await.remove(0);
        assert!(format!("{outcome:?}").starts_with(wanted), "{status}: {outcome:?}");
    }
}

/// The wait comes from the refusal: whole seconds from Slack, a fraction of a second from Discord.
#[tokio::test]
async fn a_limit_that_was_passed_is_an_outage_with_its_own_time() {
    let told = json!({ "message": "slow", "retry_after": 2.5, "global": false });
    let discord = full(429, &[("retry-after", "3")], told);
    let headers = full(429, &[("x-ratelimit-reset-after", "1.25")], json!(null));
    let slack = full(429, &[("retry-after", "7")], json!("ratelimited"));
    for (reply, is_discord, millis) in
        [(discord, true, 2_500), (headers, true, 1_250), (slack, false, 7_000)]
    {
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let settings = ChatSettings::new("team", receiver.url("/"));
        let sink = if is_discord { ChatSink::discord(settings) } else { ChatSink::slack(settings) };
        match deliver(&sink.unwrap(), &[held_event(1)]).await.remove(0) {
            Outcome::Down { retry_after, credentials: false, .. } => {
                assert_eq!(retry_after, Some(Duration::from_millis(millis)));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Six events to a webhook that accepts two per window: they wait for the next window and none is
/// refused.
#[tokio::test]
async fn a_limit_that_is_announced_is_kept_by_waiting() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let window = Duration::from_millis(150);
    let receiver = Receiver::start(move |_| {
        let last = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1;
        let remaining = if last { "0" } else { "1" };
        let limit = [("x-ratelimit-remaining", remaining), ("x-ratelimit-reset-after", "0.15")];
        full(200, &limit, json!({}))
    });
    let receiver = receiver.await;
    let sink = ChatSink::discord(ChatSettings::new("team", receiver.url("/"))).unwrap();
    let events: Vec<_> = (1..=6).map(held_event).collect();
    let started = Instant::now();
    assert_eq!(deliver(&sink, &events).await, vec![Outcome::Delivered; 6]);
    assert!(started.elapsed() >= window * 2, "{:?}", started.elapsed());
    assert_eq!(receiver.received().now_max, 1, "one at a time to a webhook");
}

/// No request is sent to a webhook that has said that it will refuse it, in this call and later.
#[tokio::test]
async fn a_pause_beyond_the_deadline_is_told_to_all_and_nothing_is_sent() {
    let slow = full(429, &[("retry-after", "600")], json!({ "retry_after": 600.0 }));
    let receiver = Receiver::start(move |_| slow.clone()).await;
    let sink = ChatSink::discord(ChatSettings::new("team", receiver.url("/"))).unwrap();
    let events: Vec<_> = (1..=3).map(held_event).collect();
    for _ in 0..2 {
        for outcome in deliver(&sink, &events).await {
            let Outcome::Down { retry_after: Some(wait), .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert!((590..=600).contains(&wait.as_secs()), "{wait:?}");
        }
    }
    assert_eq!(receiver.received().requests.len(), 1);
}

#[tokio::test]
async fn wrong_settings_are_refused_by_name_and_no_webhook_is_shown() {
    let url = "https://discord.example.com/hush";
    let with = |text: Option<&str>, body: Option<&str>| ChatSettings {
        text: text.map(str::to_owned),
        body: body.map(str::to_owned),
        ..ChatSettings::new("team", url)
    };
    for (settings, word) in [
        (with(Some("{{ nothing }}"), None), "`text`"),
        (with(None, Some("{% if %}")), "`body`"),
        (with(Some("a"), Some("1")), "exclude"),
        (ChatSettings::new("team", "hush"), "`url`"),
        (ChatSettings { url: None, ..with(None, None) }, "[[sink.route]]"),
    ] {
        let error = ChatSink::discord(settings).err().unwrap().to_string();
        assert!(error.contains(word) && error.contains("`team`"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
