//! Alerts of the daemon, as they arrive at a mail server and a webhook; the command that tries
//! them.

use postrider_testkit::{
    Answer, eventually,
    smtp::{MailServer, MailTls},
};
use serde_json::Value;

use crate::scene::{Place, Scene, Settings};

crate::on_stores!(postgres, mariadb: {
    a_webhook_that_was_away_gets_every_message_and_the_end_of_each_condition,
});
crate::on_stores!(sqlite: {
    a_webhook_that_was_away_gets_every_message_and_the_end_of_each_condition,
    a_mail_tells_of_a_dead_letter_and_of_its_resolution,
    every_channel_can_be_tried_and_says_what_it_answered,
});

fn messages(scene: &Scene) -> Vec<Value> {
    let received = scene.people.received();
    let taken = received.iter().filter(|request| request.answer == Answer::ok());
    taken.map(|request| serde_json::from_str(&request.body).unwrap()).collect()
}

/// Whether a message of that kind and state was taken.
fn has(messages: &[Value], kind: &str, state: &str) -> bool {
    messages.iter().any(|message| message["kind"] == kind && message["state"] == state)
}

async fn a_webhook_that_was_away_gets_every_message_and_the_end_of_each_condition(place: Place) {
    let settings = Settings::new()
        .alert_to("kind = 'webhook'\nreports = true")
        .relay("monitor_every", "200ms")
        .relay("report_every", "1s")
        .thresholds("pending_max = 5\nunresolved_at = 'off'");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.people.answer(Answer::status(503));
    scene.target.answer(Answer::status(503));
    scene.append_orders(6).await;
    let daemon = scene.site.start().await;
    daemon.reaches("postrider_alerts_failed_total", 1.0).await;
    scene.target.answer(Answer::ok());
    scene.drained().await;
    scene.people.answer(Answer::ok());
    let all_there = async || {
        let messages = messages(&scene);
        let conditions = ["pending/orders", "availability/orders"];
        let told = conditions.iter().all(|kind| has(&messages, kind, "raised"));
        let pending_over = has(&messages, "pending/orders", "resolved");
        (told && pending_over && has(&messages, "report/orders", "report")).then_some(messages)
    };
    let messages = eventually("everything is told, though late", all_there).await;
    let pending = messages.iter().find(|message| message["kind"] == "pending/orders").unwrap();
    assert_eq!((&pending["severity"], &pending["count"]), (&"warning".into(), &1.into()));
    assert_eq!(pending["fields"]["threshold"], "5");
    daemon.shows("postrider_alerts_waiting", &[("channel", "webhook")], 0.0).await;
    daemon.stop().await;
}

async fn a_mail_tells_of_a_dead_letter_and_of_its_resolution(place: Place) {
    let server = MailServer::with(MailTls::StartTls, Some(("postrider", "hunter2")), &[]).await;
    let (port, certificate) = (server.port(), server.certificate());
    let channel = format!(
        "kind = 'email'\nhost = 'localhost'\nport = {port}\nca = '{}'\nuser = 'postrider'\n\
         password = 'env:SMTP_PASSWORD'\nfrom = 'Postrider <postrider@example.com>'\n\
         to = ['oncall@example.com', 'second@example.com']\nseverity = 'critical'",
        certificate.display()
    );
    let settings = Settings::new().alert_to(&channel).thresholds("unresolved_at = 1");
    let Some(scene) = Scene::open(place, &settings).await else { return };
    scene.target.answer(Answer::status(422));
    scene.append_orders(1).await;
    let daemon = scene.site.launch(&[], &[("SMTP_PASSWORD", "hunter2")]).await;
    let mail = server.until("Dead letter in outbox orders").await;
    assert!(mail.encrypted && mail.user.as_deref() == Some("postrider"));
    server.until("1 unresolved dead letters").await;
    let both = async || {
        let to: std::collections::BTreeSet<_> =
            server.mails().into_iter().flat_map(|mail| mail.to).collect();
        (to.len() == 2).then_some(())
    };
    eventually("both addresses got mail", both).await;
    let id = scene.db.integer("SELECT min(id) FROM orders_outbox_dlq").await.to_string();
    let variables = [("SMTP_PASSWORD", "hunter2")];
    let resolve = ["dlq", "resolve", "--outbox", "orders", &id];
    let _ = scene.site.run_with(&resolve, &variables, "").await.exits(0);
    server.until("[resolved] Outbox orders has 0 unresolved dead letters").await;
    daemon.stop().await;
}

async fn every_channel_can_be_tried_and_says_what_it_answered(place: Place) {
    let server = MailServer::with(MailTls::None, None, &["gone@example.com"]).await;
    let channel = format!(
        "kind = 'email'\nname = 'mail'\nhost = '127.0.0.1'\nport = {}\nsecurity = 'none'\n\
         from = 'postrider@example.com'\nto = ['oncall@example.com', 'gone@example.com']",
        server.port()
    );
    let Some(scene) = Scene::open(place, &Settings::new().alert_to(&channel)).await else { return };
    let ran = scene.site.run(&["alert", "test", "--json"]).await.exits(1);
    let tried = ran.says(&["1 of 3 did not take it"]).json();
    let find = |target: &str| {
        let all = tried.as_array().unwrap();
        all.iter().find(|line| line["target"] == target).cloned().unwrap()
    };
    let (taken, refused) = (find("oncall@example.com"), find("gone@example.com"));
    assert_eq!((&taken["sent"], &refused["sent"]), (&true.into(), &false.into()));
    assert!(taken["answer"].as_str().unwrap().contains("queued as 1"), "{taken}");
    assert!(refused["answer"].as_str().unwrap().contains("no mailbox"), "{refused}");
    server.until("[test]").await;

    scene.configure(&Settings::new().alerts(false));
    let shown = scene.site.run(&["alert", "test", "--channel", "discord"]).await.exits(0);
    assert!(shown.stdout.contains("HTTP 204"), "{shown:?}");
    assert!(!shown.stdout.contains("/webhook"), "the URL is a secret: {shown:?}");
    let unknown = scene.site.run(&["alert", "test", "--channel", "pager"]).await;
    let _ = unknown.exits(2).says(&["pager", "log, discord"]);
    scene.people.answer(Answer::status(404));
    let _ = scene.site.run(&["alert", "test"]).await.exits(1).shows(&["NO", "404"]);
}
