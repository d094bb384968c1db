//! Endpoints that fail while the rest of the upstream is healthy.

use std::time::Duration;

use postrider_relay::{Preset, gateway::GatewaySettings};
use postrider_testkit::{TestDb, eventually, http::Reply as Says, relay::RunningRelay};

use super::{Scene, hello, preset, text};

mod sqlite {
    postrider_testkit::on_store!(sqlite:
        five_broken_calls_close_the_upstream_for_nobody_else,
        broken_calls_that_alternate_with_healthy_ones_keep_out_none_for_long,
        of_200_endpoints_with_20_broken_the_others_are_answered,
    );
}

const BROKEN: usize = 20;

/// Probes by events are so rare that only callers can find out within a test that the upstream is
/// healthy.
fn rarely_probed() -> Preset {
    Preset { idle_poll: Duration::from_secs(3_600), ..preset() }
}

async fn scene(db: TestDb, endpoints: Vec<String>) -> Scene {
    let scene =
        Scene::probed(db, &rarely_probed(), |settings| GatewaySettings { endpoints, ..settings })
            .await;
    scene.says(|request| match request.target.contains("broken") {
        true => Says::Status(500),
        false => hello(request),
    });
    scene
}

/// Repeats saved calls again and again, and never gives up.
fn patient_relay(scene: &Scene) -> RunningRelay {
    RunningRelay::start(scene.relay_of(Preset { max_retries: 100_000, ..preset() }))
}

async fn five_broken_calls_close_the_upstream_for_nobody_else(db: TestDb) {
    let scene = scene(db, Vec::new()).await;
    let broken: Vec<String> = (0..5).map(|number| format!("/broken/{number}")).collect();
    for target in &broken {
        assert_eq!(scene.get(target).await.status(), 503);
    }
    assert!(text(&scene.get("/healthy").await).contains("counts as down"));
    let relay = patient_relay(&scene);
    let mut number = 0;
    eventually("a caller finds out that the rest is well", async || {
        number += 1;
        (scene.get(&format!("/healthy/{number}")).await.status() == 200).then_some(())
    })
    .await;
    // The relay repeats the broken calls, and callers make them too: neither opens the breaker
    // again.
    for number in 0..200 {
        assert_eq!(scene.get(&broken[number % 5]).await.status(), 503);
        let answer = scene.get(&format!("/character/{number}")).await;
        assert_eq!(answer.status(), 200, "{number}: {}", text(&answer));
    }
    relay.stop().await;
}

async fn broken_calls_that_alternate_with_healthy_ones_keep_out_none_for_long(db: TestDb) {
    let scene = scene(db, Vec::new()).await;
    let relay = patient_relay(&scene);
    let mut healthy = 0;
    eventually("a whole round is answered", async || {
        let mut answered = 0;
        for number in 0..BROKEN {
            assert_eq!(scene.get(&format!("/broken/{number}")).await.status(), 503);
            healthy += 1;
            let answer = scene.get(&format!("/character/{healthy}")).await;
            answered += usize::from(answer.status() == 200);
        }
        (answered == BROKEN).then_some(())
    })
    .await;
    relay.stop().await;
}

async fn of_200_endpoints_with_20_broken_the_others_are_answered(db: TestDb) {
    let broken = |number: usize| format!("/broken-{number}");
    let healthy = |number: usize| format!("/healthy-{number}");
    let names = (0..BROKEN).map(broken).chain((BROKEN..200).map(healthy));
    let scene = scene(db, names.map(|name| format!("{name}/{{id}}")).collect()).await;
    let relay = patient_relay(&scene);
    let (mut asked, mut answered) = (0, 0);
    for id in 0..5 {
        for number in BROKEN..200 {
            let other = broken(number % BROKEN);
            assert_eq!(scene.get(&format!("{other}/{id}-{number}")).await.status(), 503);
            let answer = scene.get(&format!("{}/{id}", healthy(number))).await;
            asked += 1;
            answered += usize::from(answer.status() == 200);
        }
    }
    relay.stop().await;
    assert!(answered * 100 >= asked * 99, "{answered} of {asked}");
}
