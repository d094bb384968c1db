//! The live stream of statistics.

use postrider_testkit::http_client::follow;
use serde_json::Value;

use crate::api::assert_problem;
use crate::caller::{Caller, new_token, write_tokens};
use crate::scene::{Place, Scene, Settings};

mod on_one_store {
    crate::scene::tests!(sqlite {
        those_who_watch_see_events_come_and_go_until_the_daemon_stops,
        only_so_many_may_watch,
        a_stream_ends_when_its_token_is_taken_away_or_its_session_ends,
    });
}

const STREAM: &str = "/api/v1/stream";

async fn those_who_watch_see_events_come_and_go_until_the_daemon_stops(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    // Whoever comes back after a break gets the newest state, whatever it saw last.
    let mut first = follow(daemon.address(), STREAM, &[]).await.unwrap();
    let mut second =
        follow(daemon.address(), STREAM, &[("last-event-id", "999; DROP")]).await.unwrap();
    assert_eq!((first.status, second.status), (200, 200));
    let events = scene.append_orders(3).await;
    scene.received(&events).await;
    for watcher in [&mut first, &mut second] {
        loop {
            let text = watcher.next().await.expect("the stream goes on");
            let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) else {
                continue;
            };
            assert!(text.contains("event: outboxes") && text.contains("id: "), "{text}");
            let snapshot: Value = serde_json::from_str(data).unwrap();
            let outbox = &snapshot["outboxes"][0];
            if outbox["delivered"] == 3 && outbox["pending"] == 0 {
                break;
            }
        }
    }
    let history = Caller::anonymous(&daemon).get("/api/v1/outboxes/orders/history?span=days").await;
    assert!(!history.as_array().unwrap().is_empty(), "{history}");
    let stopping = tokio::spawn(daemon.stop());
    while first.next().await.is_some() {}
    while second.next().await.is_some() {}
    stopping.await.unwrap();
    scene.settle_up(&events, 0).await;
}

async fn only_so_many_may_watch(place: Place) {
    let settings = Settings::new().api("stream_clients_max", 2);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let watching = [
        follow(daemon.address(), STREAM, &[]).await.unwrap(),
        follow(daemon.address(), STREAM, &[]).await.unwrap(),
    ];
    let refused = Caller::anonymous(&daemon).call("GET", STREAM, "").await;
    assert_problem(&refused, 503, "stream_clients_max", "one too many");
    drop(watching);
    postrider_testkit::eventually("a place is free again", async || {
        let third = follow(daemon.address(), STREAM, &[]).await.unwrap();
        (third.status == 200).then_some(())
    })
    .await;
    daemon.stop().await;
}

async fn a_stream_ends_when_its_token_is_taken_away_or_its_session_ends(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let (gone, gone_line) = new_token(&scene, "gone", "viewer").await;
    let (kept, kept_line) = new_token(&scene, "kept", "viewer").await;
    write_tokens(&scene, &[&gone_line, &kept_line]);
    scene.configure(&Settings::new().api("tokens_file", "tokens"));
    let daemon = scene.site.start().await;
    let body = serde_json::json!({ "token": kept }).to_string();
    let signed_in = daemon.post("/api/v1/session", &body).await;
    let cookie = signed_in.headers["set-cookie"].split(';').next().unwrap().to_owned();
    let bearer = |token: &str| format!("Bearer {token}");
    let watch = async |name: &str, value: &str| {
        let stream = follow(daemon.address(), STREAM, &[(name, value)]).await.unwrap();
        assert_eq!(stream.status, 200);
        stream
    };
    let mut of_gone = watch("authorization", &bearer(&gone)).await;
    let mut of_kept = watch("authorization", &bearer(&kept)).await;
    let mut of_session = watch("cookie", &cookie).await;
    write_tokens(&scene, &[&kept_line]);
    while of_gone.next().await.is_some() {}
    assert!(of_session.next().await.is_some(), "the session goes on");
    let headers = [("cookie", cookie.as_str()), ("x-postrider", "1")];
    let path = "/api/v1/session";
    let out = postrider_testkit::http_client::send(daemon.address(), "DELETE", path, &headers, "");
    assert_eq!(out.await.unwrap().status, 204);
    while of_session.next().await.is_some() {}
    assert!(of_kept.next().await.is_some(), "the other token is as good as before");
    daemon.stop().await;
}
