//! Repeats of saved calls while callers make the same call.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use http::Method;
use postrider_relay::{
    Batch, Outcome, Sink,
    gateway::{GatewaySettings, GatewaySink},
};
use postrider_store::Event;
use postrider_testkit::{TestDb, http::Reply as Says, relay::held_event};
use tokio::time::Instant;

use super::{Scene, hello};

const PLENTY: Duration = Duration::from_secs(3_600);

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        a_repeat_gives_its_place_to_a_caller_who_came_while_it_waited_for_one,
        a_repeat_waits_for_a_caller_no_longer_than_its_batch_has_time,
        a_change_that_a_caller_saw_refused_is_not_done,
    );
}

fn saved(payload: &str) -> [Event; 1] {
    [Event { payload: payload.to_owned(), ..held_event(1) }]
}

/// The caller's call needs the permit that the repeat holds: if the repeat waited for the caller
/// while holding it, both would wait until the caller's timeout.
async fn a_repeat_gives_its_place_to_a_caller_who_came_while_it_waited_for_one(db: TestDb) {
    let scene =
        Scene::with(db, |settings| GatewaySettings { concurrency_max: 1, ..settings }).await;
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    scene.server.shut();
    let mut busy = pin!(scene.get("/busy"));
    assert!(poll!(&mut busy).is_pending());
    scene.server.until("the only place is taken", |all| all.requests.len() == 1).await;
    let events = saved(r#"{"method":"GET","target":"/character/1"}"#);
    let mut repeat = pin!(sink.deliver(Batch::new(&events, Instant::now() + PLENTY)));
    assert!(poll!(&mut repeat).is_pending());
    let mut caller = pin!(scene.get("/character/1"));
    assert!(poll!(&mut caller).is_pending());
    scene.server.open();
    let (_, outcomes, answer) = tokio::join!(busy, repeat, caller);
    assert_eq!((answer.status().as_u16(), outcomes), (200, vec![Outcome::AlreadyDone]));
    assert_eq!(scene.asked(), ["/v1/busy", "/v1/character/1"], "one call for both");
}

async fn a_repeat_waits_for_a_caller_no_longer_than_its_batch_has_time(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings { timeout: PLENTY, ..settings }).await;
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    scene.server.shut();
    let mut caller = pin!(scene.get("/character/1"));
    assert!(poll!(&mut caller).is_pending());
    let events = saved(r#"{"method":"GET","target":"/character/1"}"#);
    let deadline = Instant::now() + Duration::from_millis(200);
    let repeat = tokio::time::timeout(PLENTY / 60, sink.deliver(Batch::new(&events, deadline)));
    assert_eq!(repeat.await.expect("it gives up"), [Outcome::Untried]);
    scene.server.open();
    assert_eq!(caller.await.status(), 200);
    assert_eq!(scene.asked().len(), 1, "and makes no call beside the caller's");
}

async fn a_change_that_a_caller_saw_refused_is_not_done(db: TestDb) {
    let scene = Scene::with(db, |settings| GatewaySettings {
        methods: vec!["POST".to_owned()],
        ..settings
    })
    .await;
    let sink = GatewaySink::new(Arc::clone(&scene.upstream));
    let payload = r#"{"method":"POST","target":"/points","idempotency_key":"order-1","body":"{}"}"#;
    let events = saved(payload);
    for (status, outcome) in [(422, Outcome::Untried), (200, Outcome::AlreadyDone)] {
        scene.says(move |request| match status {
            200 => hello(request),
            status => Says::Status(status),
        });
        scene.server.shut();
        let key = [("idempotency-key", "order-1")];
        let mut caller = pin!(scene.send(Method::POST, "/points", &key));
        assert!(poll!(&mut caller).is_pending());
        let mut repeat = pin!(sink.deliver(Batch::new(&events, Instant::now() + PLENTY)));
        assert!(poll!(&mut repeat).is_pending());
        scene.server.open();
        let (answer, outcomes) = tokio::join!(caller, repeat);
        assert_eq!((answer.status().as_u16(), outcomes), (status, vec![outcome]));
    }
    assert_eq!(scene.asked().len(), 2);
}
