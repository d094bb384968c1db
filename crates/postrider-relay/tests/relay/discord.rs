//! The Discord channel, against a local receiver.

use postrider::Event;
use postrider_relay::alert::{Alert, Channel, DiscordChannel, Severity};
use postrider_testkit::http::{Receiver, Reply};
use postrider_testkit::relay::held_event;

fn alert(event: Option<Event>) -> Alert {
    Alert {
        severity: Severity::Critical,
        kind: "kind".to_owned(),
        title: "Dead letter in outbox orders".to_owned(),
        fields: vec![("id", "7".to_owned()), ("error", "timeout".to_owned())],
        event: event.map(Box::new),
    }
}

fn content(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 1, "content and nothing else");
    body["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_alert_is_a_json_message() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let channel = DiscordChannel::new(receiver.url("/webhook/secret"), true).unwrap();
    channel.send(&alert(None)).await.unwrap();
    let request = receiver.received().requests[0].clone();
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/webhook/secret"));
    assert_eq!(request.header("content-type"), ["application/json"]);
    let text = content(&request.body);
    assert_eq!(text, "**[critical] Dead letter in outbox orders**\nid: 7\nerror: timeout\n");
}

#[tokio::test]
async fn a_small_event_is_in_the_message() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let channel = DiscordChannel::new(receiver.url("/"), true).unwrap();
    channel.send(&alert(Some(held_event(7)))).await.unwrap();
    let text = content(&receiver.received().requests[0].body);
    let json = text.split("```json\n").nth(1).and_then(|rest| rest.strip_suffix("\n```"));
    let event: serde_json::Value = serde_json::from_str(json.unwrap()).unwrap();
    assert_eq!(event["payload"], held_event(7).payload);
    assert_eq!(event["event_id"], held_event(7).event_id);
}

#[tokio::test]
async fn a_long_message_is_cut_to_what_discord_takes() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let channel = DiscordChannel::new(receiver.url("/"), true).unwrap();
    let mut long = alert(None);
    long.fields.push(("detail", "ü".repeat(5_000)));
    channel.send(&long).await.unwrap();
    assert_eq!(content(&receiver.received().requests[0].body).chars().count(), 2_000);
}

#[tokio::test]
async fn a_large_event_travels_whole_as_an_attachment() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let channel = DiscordChannel::new(receiver.url("/"), true).unwrap();
    let event = Event { payload: "é\r\n--x".repeat(3_000), ..held_event(7) };
    channel.send(&alert(Some(event.clone()))).await.unwrap();
    let request = receiver.received().requests[0].clone();
    let kind = request.header("content-type")[0].to_owned();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let parts: Vec<&str> = request.body.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "nothing, message, file, end");
    assert_eq!(parts[3], "--\r\n");
    let part = |number: usize| {
        let (head, body) = parts[number].split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.strip_suffix("\r\n").unwrap().to_owned())
    };
    let (head, body) = part(1);
    assert!(head.contains("name=\"payload_json\""), "{head}");
    assert!(content(&body).contains("Dead letter"));
    let (head, body) = part(2);
    assert!(head.contains("name=\"files[0]\"; filename=\"event.json\""), "{head}");
    let sent: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(sent["payload"], event.payload, "none of it is cut off");
}

#[tokio::test]
async fn the_url_is_in_no_error() {
    let refusing = Receiver::start(|_| Reply::Status(404)).await;
    let closing = Receiver::start(|_| Reply::Close).await;
    for url in [
        refusing.url("/hush/token"),
        closing.url("/hush/token"),
        "http://127.0.0.1:1/hush/token".to_owned(),
        "hush/token".to_owned(),
        "http://hush token/".to_owned(),
    ] {
        let channel = DiscordChannel::new(url.clone(), true).unwrap();
        let error = channel.send(&alert(None)).await.unwrap_err();
        assert!(!error.contains("hush") && !error.contains("token"), "{url}: {error}");
    }
}
