//! Channels for alerts, against local receivers that see the real messages.

use postrider_relay::alerts::{
    Alert, Channel, DiscordChannel, EmailChannel, EmailSettings, MailSecurity, Message,
    MessageState, Severity, SlackChannel, WebhookChannel,
};
use postrider_store::Event;
use postrider_testkit::{
    http::{Receiver, Reply},
    relay::held_event,
    smtp::{MailServer, MailTls},
};
use serde_json::Value;

fn message(event: Option<Event>) -> Message {
    let alert = Alert {
        severity: Severity::Critical,
        kind: "dead-letter/orders".to_owned(),
        title: "Dead letter in outbox orders".to_owned(),
        fields: vec![
            ("id", "7".to_owned()),
            ("error", "timeout <!channel> & @everyone".to_owned()),
        ],
        event: event.map(Box::new),
    };
    Message::new(MessageState::Raised, alert, 3)
}

fn content(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["allowed_mentions"]["parse"], serde_json::json!([]), "no one is mentioned");
    body["content"].as_str().unwrap().to_owned()
}

fn discord(receiver: &Receiver, path: &str) -> DiscordChannel {
    DiscordChannel::new("team", &receiver.url(path)).unwrap()
}

#[tokio::test]
async fn discord_gets_a_json_message() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let answer = discord(&receiver, "/webhook/secret").send(&message(None)).await.unwrap();
    assert_eq!(answer, "HTTP 204 No Content");
    let request = receiver.received().requests[0].clone();
    assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/webhook/secret"));
    assert_eq!(request.header("content-type"), ["application/json"]);
    let text = content(&request.body);
    assert!(text.starts_with("**[critical] Dead letter in outbox orders**\nid: 7\n"), "{text}");
}

#[tokio::test]
async fn discord_shows_a_small_event_in_the_message() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    discord(&receiver, "/").send(&message(Some(held_event(7)))).await.unwrap();
    let text = content(&receiver.received().requests[0].body);
    let json = text.split("```json\n").nth(1).and_then(|rest| rest.strip_suffix("\n```"));
    let event: Value = serde_json::from_str(json.unwrap()).unwrap();
    assert_eq!(event["payload"], held_event(7).payload);
    assert_eq!(event["event_id"], held_event(7).event_id);
}

#[tokio::test]
async fn discord_gets_no_more_than_it_takes() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let mut long = message(None);
    long.fields.push(("detail", "ü".repeat(5_000)));
    discord(&receiver, "/").send(&long).await.unwrap();
    assert_eq!(content(&receiver.received().requests[0].body).chars().count(), 2_000);
}

#[tokio::test]
async fn discord_gets_a_large_event_whole_as_an_attachment() {
    let receiver = Receiver::start(|_| Reply::Status(200)).await;
    let event = Event { payload: "é\r\n--x".repeat(3_000), ..held_event(7) };
    discord(&receiver, "/").send(&message(Some(event.clone()))).await.unwrap();
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
    let sent: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(sent["payload"], event.payload, "none of it is cut off");
}

#[tokio::test]
async fn slack_gets_a_text_that_calls_nobody() {
    let receiver = Receiver::start(|_| Reply::Full(200, Vec::new(), "ok".to_owned())).await;
    let slack = SlackChannel::new("slack", &receiver.url("/services/T/B/secret")).unwrap();
    slack.send(&message(Some(held_event(7)))).await.unwrap();
    let body: Value = serde_json::from_str(&receiver.received().requests[0].body).unwrap();
    let text = body["text"].as_str().unwrap();
    assert!(text.starts_with("*[critical] Dead letter in outbox orders*\nid: 7\n"), "{text}");
    assert!(text.contains("timeout &lt;!channel&gt; &amp; @everyone"), "{text}");
    assert!(text.contains(&held_event(7).event_id), "{text}");
}

/// Returns an event with every kind of text, 200 KB of it: the last copy of an event.
fn large_event() -> Event {
    let payload = "{\"note\":\"<!channel> & ``` ü\\n\"}".repeat(8_000);
    assert!(payload.len() > 200_000);
    let headers = Some("{\"traceparent\":\"00-1\"}".to_owned());
    Event { payload, headers, expires_at: Some(held_event(7).created_at), ..held_event(7) }
}

/// Returns the event as JSON, as every channel that may carry payloads must deliver it.
fn as_json(event: &Event) -> Value {
    serde_json::to_value(event).unwrap()
}

/// Slack fails, slows down and loses answers in between: each part arrives, in order.
#[tokio::test]
async fn slack_gets_a_large_event_whole_in_numbered_parts() {
    let answers = std::sync::atomic::AtomicUsize::new(0);
    let receiver =
        Receiver::start(move |_| match answers.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            2 => Reply::Status(503),
            4 => Reply::Full(429, vec![("retry-after", "0".to_owned())], String::new()),
            _ => Reply::Full(200, Vec::new(), "ok".to_owned()),
        })
        .await;
    let slack = SlackChannel::new("slack", &receiver.url("/services/T/B/secret")).unwrap();
    let message = message(Some(large_event()));
    assert!(!slack.send(&message).await.unwrap_err().refused, "it is tried again");
    slack.send(&message).await.unwrap();

    let requests = receiver.received().requests.clone();
    let texts: Vec<String> = requests
        .iter()
        .map(|request| serde_json::from_str::<Value>(&request.body).unwrap()["text"].clone())
        .map(|text| text.as_str().unwrap().to_owned())
        .collect();
    assert!(texts.iter().all(|text| text.chars().count() <= 40_000));
    assert!(texts[0].starts_with("*[critical] Dead letter in outbox orders*\nid: 7\n"));
    assert_eq!((&texts[2], &texts[4]), (&texts[3], &texts[5]), "only what failed is repeated");
    let mut seen: Vec<&String> = texts[1..].iter().collect();
    seen.dedup();
    let mut json = String::new();
    for (index, text) in seen.iter().enumerate() {
        let (title, part) = text.split_once("\n```").unwrap();
        assert!(title.ends_with(&format!("part {} of {}", index + 1, seen.len())), "{title}");
        json.push_str(part.strip_suffix("```").unwrap());
    }
    assert!(!json.contains(['<', '>', '&', '`']), "Slack reads none of it as its own");
    let event: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(event, as_json(&large_event()));
}

#[tokio::test]
async fn a_webhook_and_discord_get_a_large_event_whole() {
    let receiver = Receiver::start(|_| Reply::Status(204)).await;
    let message = message(Some(large_event()));
    let expected = as_json(message.event.as_ref().unwrap());
    let hook = WebhookChannel::new("ops", &receiver.url("/alerts"), &[]).unwrap();
    hook.send(&message).await.unwrap();
    discord(&receiver, "/").send(&message).await.unwrap();
    let requests = receiver.received().requests.clone();
    let body: Value = serde_json::from_str(&requests[0].body).unwrap();
    assert_eq!(body["event"], expected);
    let file = requests[1].body.split("\r\n\r\n").nth(2).unwrap();
    let file = file.rsplit_once("\r\n--").unwrap().0;
    let file = file.split_once("\r\n--").map_or(file, |(file, _)| file);
    assert_eq!(serde_json::from_str::<Value>(file).unwrap(), expected);
}

#[tokio::test]
async fn a_webhook_gets_the_message_as_json_with_a_signature_that_fits() {
    use base64::Engine;
    use hmac::{Hmac, KeyInit, Mac};
    let receiver = Receiver::start(|_| Reply::Status(202)).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
    let hook = WebhookChannel::new("ops", &receiver.url("/alerts"), &[secret]).unwrap();
    let message = message(Some(held_event(7)));
    hook.send(&message).await.unwrap();
    hook.send(&message).await.unwrap();
    let request = receiver.received().requests[0].clone();
    let body: Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body["state"], "raised");
    assert_eq!(body["severity"], "critical");
    assert_eq!(body["kind"], "dead-letter/orders");
    assert_eq!(body["count"], 3);
    assert_eq!(body["fields"]["id"], "7");
    assert_eq!(body["event"]["event_id"], held_event(7).event_id);
    let id = request.header("webhook-id")[0];
    assert_eq!(receiver.received().requests[1].header("webhook-id"), [id], "a retry is not news");
    assert_eq!(body["id"], id);
    let key = base64::engine::general_purpose::STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key.unwrap()).unwrap();
    let at = request.header("webhook-timestamp")[0];
    mac.update(format!("{id}.{at}.{}", request.body).as_bytes());
    let signature = base64::engine::general_purpose::STANDARD.encode(mac.finalize().into_bytes());
    assert_eq!(request.header("webhook-signature"), [format!("v1,{signature}")]);
}

/// A value comes from an event, whose appender could forge fields of the alert with line breaks.
#[tokio::test]
async fn a_line_break_in_a_value_begins_no_line() {
    let forged = "Order\r\nseverity: info\u{2028}x\u{1b}[2K\u{85}y";
    let alert = Alert {
        severity: Severity::Critical,
        kind: format!("dead-letter/{forged}"),
        title: format!("Dead letter of {forged}"),
        fields: vec![("event_type", forged.to_owned())],
        event: None,
    };
    let message = Message::new(MessageState::Raised, alert, 1);
    let shown = r"Order\r\nseverity: info\u{2028}x\u{1b}[2K\u{85}y";
    let server = MailServer::start().await;
    let mail = EmailChannel::new(mail_to(&server, "oncall@example.com")).unwrap();
    mail.send(&message).await.unwrap();
    let mail = server.mails()[0].text.clone();
    assert!(mail.contains(&format!("event_type: {shown}")), "{mail}");
    assert!(!mail.contains("\nseverity: info"), "{mail}");

    let receiver = Receiver::start(|_| Reply::Status(202)).await;
    let hook = WebhookChannel::new("ops", &receiver.url("/alerts"), &[]).unwrap();
    hook.send(&message).await.unwrap();
    let body: Value = serde_json::from_str(&receiver.received().requests[0].body).unwrap();
    assert_eq!(body["title"], format!("Dead letter of {shown}"));
    assert_eq!(body["kind"], format!("dead-letter/{shown}"));
    assert_eq!(body["fields"]["event_type"], shown);
}

#[tokio::test]
async fn a_refused_message_is_told_apart_from_a_receiver_that_is_down() {
    for (status, refused) in [(400, true), (413, true), (404, false), (429, false), (503, false)] {
        let receiver = Receiver::start(move |_| Reply::Status(status)).await;
        let hook = WebhookChannel::new("ops", &receiver.url("/"), &[]).unwrap();
        let failed = hook.send(&message(None)).await.unwrap_err();
        assert_eq!(failed.refused, refused, "{status}: {failed:?}");
        assert!(failed.error.contains(&status.to_string()), "{failed:?}");
    }
}

#[tokio::test]
async fn the_url_is_in_no_error() {
    let refusing = Receiver::start(|_| Reply::Status(404)).await;
    let closing = Receiver::start(|_| Reply::Close).await;
    for url in [
        refusing.url("/hush/token"),
        closing.url("/hush/token"),
        "http://127.0.0.1:1/hush/token".to_owned(),
    ] {
        let channel = DiscordChannel::new("team", &url).unwrap();
        let error = channel.send(&message(None)).await.unwrap_err().error;
        assert!(!error.contains("hush") && !error.contains("token"), "{url}: {error}");
    }
    for url in ["hush/token", "http://hush token/", "ftp://hush/token"] {
        let error = DiscordChannel::new("team", url).err().unwrap();
        assert!(!error.contains("hush") && !error.contains("token"), "{url}: {error}");
    }
}

fn mail_to(server: &MailServer, to: &str) -> EmailSettings {
    EmailSettings {
        name: "mail".to_owned(),
        host: "localhost".to_owned(),
        port: Some(server.port()),
        security: MailSecurity::None,
        ca: None,
        login: None,
        from: "Postrider <postrider@example.com>".to_owned(),
        to: to.to_owned(),
    }
}

#[tokio::test]
async fn a_mail_has_subject_fields_and_the_event_as_an_attachment() {
    let server = MailServer::start().await;
    let channel = EmailChannel::new(mail_to(&server, "On Call <oncall@example.com>")).unwrap();
    assert_eq!(channel.target(), "oncall@example.com");
    let alert = message(Some(held_event(7)));
    let answer = channel.send(&alert).await.unwrap();
    assert!(answer.contains("250") && answer.contains("queued as 1"), "{answer}");
    let mail = server.mails()[0].clone();
    assert_eq!(mail.to, ["oncall@example.com"]);
    let header = |name| mail.header(name).unwrap_or_default();
    assert_eq!(header("subject"), "[critical] Dead letter in outbox orders");
    assert_eq!(header("from"), "Postrider <postrider@example.com>");
    assert_eq!(header("message-id"), format!("<{}@example.com>", alert.id));
    assert_eq!(header("auto-submitted"), "auto-generated");
    assert!(header("content-type").starts_with("multipart/mixed"), "{}", mail.text);
    assert!(mail.text.contains("error: timeout <!channel> & @everyone"), "{}", mail.text);
    assert!(mail.text.contains("filename=\"event.json\""), "{}", mail.text);
}

#[tokio::test]
async fn a_mail_has_a_large_event_whole() {
    use base64::Engine;
    let server = MailServer::start().await;
    let channel = EmailChannel::new(mail_to(&server, "oncall@example.com")).unwrap();
    channel.send(&message(Some(large_event()))).await.unwrap();
    let mail = server.mails()[0].text.replace("\r\n", "\n");
    let (_, attached) = mail.split_once("filename=\"event.json\"").unwrap();
    let (head, body) = attached.split_once("\n\n").unwrap();
    assert!(head.to_lowercase().contains("base64"), "{head}");
    let body: String = body.split("\n--").next().unwrap().split_whitespace().collect();
    let json = base64::engine::general_purpose::STANDARD.decode(body).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), as_json(&large_event()));
}

#[tokio::test]
async fn a_mail_is_sent_by_starttls_or_tls_after_a_login() {
    for (tls, security) in
        [(MailTls::StartTls, MailSecurity::StartTls), (MailTls::Wrapped, MailSecurity::Tls)]
    {
        let login = ("postrider", "hunter2");
        let server = MailServer::with(tls, Some(login), &[]).await;
        let trusted = EmailSettings {
            security,
            ca: Some(std::fs::read(server.certificate()).unwrap()),
            login: Some((login.0.to_owned(), login.1.to_owned())),
            ..mail_to(&server, "oncall@example.com")
        };
        EmailChannel::new(trusted.clone()).unwrap().send(&message(None)).await.unwrap();
        let mail = server.mails()[0].clone();
        assert_eq!((mail.encrypted, mail.user.as_deref()), (true, Some("postrider")), "{tls:?}");

        let stranger = EmailChannel::new(EmailSettings { ca: None, ..trusted.clone() }).unwrap();
        let failed = stranger.send(&message(None)).await.unwrap_err();
        assert!(failed.error.to_lowercase().contains("certificate"), "{tls:?}: {failed:?}");
        let wrong = Some(("postrider".to_owned(), "wrong".to_owned()));
        let wrong = EmailChannel::new(EmailSettings { login: wrong, ..trusted }).unwrap();
        let failed = wrong.send(&message(None)).await.unwrap_err();
        assert!(failed.error.contains("535") || failed.error.contains("wrong user"), "{failed:?}");
        assert!(!failed.error.contains("hunter2"));
        assert_eq!(server.mails().len(), 1, "{tls:?}");
    }
}

#[tokio::test]
async fn a_refused_recipient_is_told_and_a_server_that_is_down_may_come_back() {
    let server = MailServer::with(MailTls::None, None, &["gone@example.com"]).await;
    let gone = EmailChannel::new(mail_to(&server, "gone@example.com")).unwrap();
    let failed = gone.send(&message(None)).await.unwrap_err();
    assert!(failed.refused && failed.error.contains("no mailbox"), "{failed:?}");
    let channel = EmailChannel::new(mail_to(&server, "oncall@example.com")).unwrap();
    server.set_down(true);
    let failed = channel.send(&message(None)).await.unwrap_err();
    assert!(!failed.refused && failed.error.contains("closed for today"), "{failed:?}");
    server.set_down(false);
    channel.send(&message(None)).await.unwrap();
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn a_password_is_never_sent_in_the_clear() {
    let settings = EmailSettings {
        name: "mail".to_owned(),
        host: "smtp.example.com".to_owned(),
        port: None,
        security: MailSecurity::None,
        ca: None,
        login: Some(("user".to_owned(), "hunter2".to_owned())),
        from: "a@example.com".to_owned(),
        to: "b@example.com".to_owned(),
    };
    let error = EmailChannel::new(settings.clone()).err().unwrap();
    assert!(error.contains("starttls") && !error.contains("hunter2"), "{error}");
    let nobody = EmailSettings { to: "nobody".to_owned(), login: None, ..settings };
    let error = EmailChannel::new(nobody).err().unwrap();
    assert!(error.contains("`to`") && error.contains("nobody"), "{error}");
}
