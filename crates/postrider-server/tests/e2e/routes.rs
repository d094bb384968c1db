//! Routes, from the configuration file to the dead letters.

use postrider::NewEvent;
use postrider_testkit::Installation;
use toml::{Table, Value};

use crate::scene::{BINARY, Place, Scene, Settings};

crate::on_stores!(sqlite: { an_event_that_a_route_does_not_fit_is_a_dead_letter_and_no_other_is });

fn route(pairs: &[(&str, String)]) -> Value {
    let table: Table =
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())).collect();
    table.into()
}

async fn an_event_that_a_route_does_not_fit_is_a_dead_letter_and_no_other_is(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let large = route(&[
        ("event_type", "Order*".to_owned()),
        ("filter", "payload.amount > 100".to_owned()),
        ("to", format!("{}/large/{{payload.region}}", scene.target.url())),
    ]);
    let settings = Settings::new().sink("route", vec![large]).sink("form", "cloudevents-binary");
    scene.configure(&settings);
    let _ = scene.site.run(&["run", "--check"]).await.exits(0);
    let order = |payload: &str| NewEvent::new("order", "o-1", "OrderPlaced", payload);
    let good = scene
        .append(&[
            order(r#"{"amount": 500, "region": "eu"}"#),
            order(r#"{"amount": 5}"#),
            order("no amount at all"),
        ])
        .await;
    let nowhere = scene.append_one(order(r#"{"amount": 500}"#)).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(1).await;
    scene.drained().await;
    daemon.stop().await;
    let received = scene.target.received();
    let large: Vec<_> = received.iter().filter(|r| r.path.starts_with("/large/")).collect();
    assert_eq!(large.len(), 1);
    assert_eq!(large[0].path, "/large/eu");
    assert_eq!(large[0].header("ce-type"), "OrderPlaced");
    let dead = &scene.dead_letters().await[0];
    assert_eq!((&dead["original_id"], &dead["reason"]), (&nowhere.id.into(), &"no_route".into()));
    let error = dead["error_message"].as_str().unwrap();
    assert!(error.contains("{payload.region}") && error.contains("[[sink.route]] 1"), "{error}");
    scene.settle_up(&good, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_is_wrong_in_itself_is_found_by_the_check() {
    let site = Installation::new(BINARY, "");
    let outbox = "[[outbox]]\nname = 'orders'\npreset = 'broker'\nsink = 's'\n";
    let http = "[[sink]]\nname = 's'\nkind = 'http'\nurl = 'http://127.0.0.1:1'\n";
    let redis = "[[sink]]\nname = 's'\nkind = 'redis'\nurl = 'redis://127.0.0.1:1'\n";
    for (sink, words) in [
        (
            format!("{http}[[sink.route]]\nto = 'http://h/{{x}}'"),
            ["`s`", "[[sink.route]] 1", "`{x}`"],
        ),
        (
            format!("{redis}stream='a'\n[[sink.route]]\nto = 'b'\nfilter = 'payload.x >'"),
            ["`s`", "[[sink.route]] 1", "payload.x >"],
        ),
        (redis.to_owned(), ["`s`", "`stream`", "[[sink.route]]"]),
        (format!("{http}body = '{{{{ orders }}}}'"), ["`s`", "`body`", "`orders`"]),
        (format!("{http}signing_secrets = ['x']"), ["`s`", "`signing_secrets`", "whsec_"]),
        (
            format!("{http}[[sink.route]]\nto = 'http://h'\nevent = 'x'"),
            ["`event`", "`event_type`", "line"],
        ),
    ] {
        site.configure(&format!("{outbox}{sink}"));
        let _ = site.run(&["run", "--check"]).await.exits(2).says(&words);
    }
}
