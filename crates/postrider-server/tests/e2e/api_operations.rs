//! What an operator sees and does over HTTP, on every store.

use postrider::NewEvent;
use postrider_testkit::{Answer, Daemon, eventually};
use serde_json::{Value, json};

use crate::api::assert_problem;
use crate::caller::{Caller, with_roles};
use crate::scene::{Committed, Place, Scene, Settings};

crate::on_stores!(postgres, mariadb, sqlite: {
    dead_letters_are_found_grouped_retried_resolved_and_edited,
    a_bulk_job_is_counted_made_once_and_run_by_the_relay,
    events_are_found_page_by_page_and_shown_with_their_story,
    an_outbox_and_a_sink_are_paused_and_resumed,
    relays_lanes_and_parked_keys_are_shown_and_released,
    the_ledger_is_read_beside_the_requests,
    what_is_exported_can_be_imported,
});

const OUTBOX: &str = "/api/v1/outboxes/orders";

/// Dead letters of these types, and a daemon with tokens.
async fn with_dead_letters(
    place: Place,
    types: &[&str],
) -> Option<(Scene, Daemon, [String; 3], Vec<Committed>)> {
    let scene = Scene::open(place, &Settings::new()).await?;
    let tokens = with_roles(&scene, Settings::new()).await;
    scene.target.answer_by(|request| match request.body.contains("odd") {
        true => Answer::status(422).body("odd"),
        false => Answer::status(400).body("bad"),
    });
    let event = |(number, name): (usize, &&str)| {
        let payload = json!({ "n": number, "kind": if number % 2 == 1 { "odd" } else { "even" } });
        let event = NewEvent::new("order", format!("order-{number}"), *name, payload.to_string());
        event.request_id(format!("r-{number}"))
    };
    let events: Vec<NewEvent> = types.iter().enumerate().map(event).collect();
    let events = scene.append(&events).await;
    let daemon = scene.site.start().await;
    scene.has_dead_letters(i64::try_from(types.len()).unwrap()).await;
    scene.target.answer(Answer::ok());
    Some((scene, daemon, tokens, events))
}

fn ids(listed: &Value) -> Vec<i64> {
    listed["rows"].as_array().unwrap().iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

/// Every page of a list, to its end.
async fn all_pages(caller: &Caller<'_>, path: &str) -> Vec<i64> {
    let (mut found, mut before) = (Vec::new(), String::new());
    loop {
        let page = caller.get(&format!("{path}{before}")).await;
        found.extend(ids(&page));
        match page["next"].as_i64() {
            Some(next) => before = format!("&before={next}"),
            None => return found,
        }
    }
}

async fn dead_letters_are_found_grouped_retried_resolved_and_edited(place: Place) {
    let types = ["A", "B", "A", "B", "A"];
    let Some((scene, daemon, tokens, events)) = with_dead_letters(place, &types).await else {
        return;
    };
    let [viewer, otto] = [0, 1].map(|n| Caller::with(&daemon, &tokens[n]));
    let letters = format!("{OUTBOX}/dead-letters");
    let all = all_pages(&viewer, &format!("{letters}?limit=2")).await;
    assert!(all.len() == 5 && all.is_sorted_by(|a, b| a > b), "newest first, each once: {all:?}");
    assert_eq!(all_pages(&viewer, &format!("{letters}?limit=9&event_type=B")).await.len(), 2);
    assert_eq!(all_pages(&viewer, &format!("{letters}?limit=9&error=422")).await.len(), 2);
    let count = viewer.get(&format!("{letters}/count?resolved=false")).await;
    assert_eq!(count, json!({ "count": 5, "at_least": false }));

    let groups = viewer.get(&format!("{letters}/groups")).await;
    let groups = groups["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{groups:#?}");
    let of_422 = groups.iter().find(|g| g["sample"].as_str().unwrap().contains("422")).unwrap();
    assert_eq!((&of_422["count"]["count"], &of_422["reason"]), (&2.into(), &"rejected".into()));
    let print = of_422["fingerprint"].as_str().unwrap();
    let same = all_pages(&viewer, &format!("{letters}?limit=9&fingerprint={print}")).await;
    assert_eq!(same.len(), 2);

    let id = *all.last().unwrap();
    let one = format!("{letters}/{id}");
    let story = viewer.get(&one).await;
    assert_eq!(story["dead_letter"]["event_id"], events[0].event_id);
    assert_eq!(
        (&story["content"]["hash"], &story["dead_letter"]["resolved"]),
        (&"verified".into(), &false.into())
    );
    let retried = otto.post(&format!("{one}/retry"), &json!({ "note": "fixed" })).await;
    let again = otto.call("POST", &format!("{one}/retry"), "{}").await;
    assert_problem(&again, 409, "resolved already", "whoever never heard the answer asks again");
    let again = again.json();
    assert_eq!(again["retried_as"], retried["retried_as"], "{again:#}");
    assert_eq!(
        (&again["resolved_by"], &again["resolution_note"]),
        (&"otto".into(), &"fixed".into())
    );

    let second = format!("{letters}/{}", all[3]);
    otto.post(&format!("{second}/resolve"), &json!({ "note": "refunded" })).await;
    let late = otto.call("POST", &format!("{second}/resend"), r#"{"payload":"{}"}"#).await;
    assert_problem(&late, 409, "resolved already", "an edit of what is resolved");

    let third = format!("{letters}/{}", all[2]);
    let nothing = otto.call("POST", &format!("{third}/resend"), "{}").await;
    assert_problem(&nothing, 422, "", "an edit that changes nothing");
    let edit = json!({ "payload": r#"{"n":2,"fixed":true}"#, "note": "typo" });
    let resent = otto.post(&format!("{third}/resend"), &edit).await;
    let identity = resent["event_id"].as_str().unwrap().to_owned();
    assert_ne!(identity, events[2].event_id, "new content, new identity");
    scene.drained().await;
    let call = &scene.target.calls(&identity)[0];
    assert_eq!(call.body, r#"{"n":2,"fixed":true}"#);
    let found = viewer.get(&format!("{OUTBOX}/identities/{identity}")).await;
    assert_eq!(found["events"][0]["status"], "COMPLETED", "{found:#}");

    let alerts = viewer.get("/api/v1/alerts").await;
    let told: Vec<_> =
        ["active", "past"].iter().flat_map(|l| alerts[l].as_array().unwrap()).collect();
    assert!(told.iter().any(|alert| alert["severity"] == "critical"), "dead letters: {alerts:#}");
    let audit = viewer.get("/api/v1/audit?operator=otto").await;
    let actions: Vec<_> =
        audit["rows"].as_array().unwrap().iter().map(|r| r["action"].clone()).collect();
    assert_eq!(actions, ["dlq.resend", "dlq.resolve", "dlq.retry"], "{audit:#}");
    eventually("the statistics follow", async || {
        (viewer.get(OUTBOX).await["unresolved"] == 2).then_some(())
    })
    .await;
    daemon.stop().await;
}

async fn a_bulk_job_is_counted_made_once_and_run_by_the_relay(place: Place) {
    let types = ["A", "B", "A", "B", "A", "A"];
    let Some((scene, daemon, tokens, events)) = with_dead_letters(place, &types).await else {
        return;
    };
    let otto = Caller::with(&daemon, &tokens[1]);
    let jobs = format!("{OUTBOX}/jobs");
    let work = json!({ "kind": "dlq_retry", "filter": { "event_type": "A" } });
    let dry = otto.post(&jobs, &json!({ "work": work, "dry_run": true })).await;
    assert_eq!(dry, json!({ "dry_run": true, "count": 4, "at_least": false }));
    assert_eq!(otto.get("/api/v1/jobs").await["rows"], json!([]), "a dry run makes no job");

    let canary = json!({ "count": 1, "within_s": 60 });
    let body = json!({ "work": work, "note": "api is back", "rate": 1000, "canary": canary });
    let job = otto.expect("POST", &jobs, body.to_string(), 201).await;
    let keyed = async |token: &str, body: &Value| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("content-type", "application/json"),
            ("authorization", &*bearer),
            ("idempotency-key", "night-1"),
        ];
        let send = postrider_testkit::http_client::send;
        send(daemon.address(), "POST", &jobs, &headers, body.to_string()).await.unwrap()
    };
    assert_eq!((&job["operator"], &job["kind"]), (&"otto".into(), &"dlq_retry".into()));
    let path = format!("/api/v1/jobs/{}", job["id"]);
    let done = eventually("the job is done", async || {
        let job = otto.get(&path).await;
        assert!(!["stopped", "failed"].contains(&job["state"].as_str().unwrap()), "{job:#}");
        (job["state"] == "done").then_some(job)
    });
    let done = done.await;
    assert_eq!((&done["done_count"], &done["skipped_count"]), (&4.into(), &0.into()), "{done:#}");
    assert_eq!(done["progress"], 1.0);
    for verb in ["stop", "resume"] {
        let late = otto.call("POST", &format!("{path}/{verb}"), "{}").await;
        assert_problem(&late, 409, "", "a job that is done");
        assert_eq!(late.json()["state"], "done");
    }
    let retried: Vec<Committed> = [0, 2, 4, 5].map(|n| events[n].clone()).to_vec();
    scene.received(&retried).await;
    scene.drained().await;

    let rest = json!({ "work": { "kind": "dlq_resolve", "filter": {} }, "note": "old" });
    let made = keyed(&tokens[1], &rest).await;
    let again = keyed(&tokens[1], &rest).await;
    assert_eq!((made.status, again.status), (201, 200), "the answer was lost, and asked for again");
    let (job, again) = (made.json(), again.json());
    assert_eq!(job["id"], again["id"], "one job, however often it is asked for");
    let other = keyed(&tokens[1], &json!({ "work": work })).await;
    assert_problem(&other, 409, "another job", "the same key for other work");
    eventually("the rest is resolved", async || {
        let job = otto.get(&format!("/api/v1/jobs/{}", job["id"])).await;
        (job["state"] == "done").then_some(())
    })
    .await;
    let count = otto.get(&format!("{OUTBOX}/dead-letters/count?resolved=false")).await;
    assert_eq!(count["count"], 0);
    let replay =
        json!({ "work": { "kind": "replay", "filter": {}, "into": "nowhere" } }).to_string();
    let nowhere = otto.call("POST", &jobs, &replay).await;
    assert_problem(&nowhere, 404, "nowhere", "a replay into an outbox that is not there");
    let replay = json!({ "work": { "kind": "replay", "filter": {} }, "dry_run": true });
    assert_eq!(otto.post(&jobs, &replay).await["count"], 4, "what was delivered is in the archive");
    daemon.stop().await;
    let keeps_none = Settings::new().outbox("on_success", "delete").api("tokens_file", "tokens");
    scene.configure(&keeps_none);
    let daemon = scene.site.start().await;
    let refused = Caller::with(&daemon, &tokens[1]).call("POST", &jobs, &replay.to_string()).await;
    assert_problem(&refused, 422, "keeps no archive", "a replay of what is deleted at delivery");
    daemon.stop().await;
    scene.configure(&Settings::new());
    scene.settle_up(&retried, 6).await;
}

async fn events_are_found_page_by_page_and_shown_with_their_story(place: Place) {
    let Some(scene) = Scene::open(
        place,
        &Settings::new().outbox("backoff_first", "1h").outbox("backoff_max", "1h"),
    )
    .await
    else {
        return;
    };
    scene.target.answer_by(|request| match request.path.ends_with("/order-7") {
        true => Answer::status(404).body("not here"),
        false => Answer::ok(),
    });
    let event = |n: u64| {
        NewEvent::new("order", format!("order-{n}"), "OrderPlaced", "{}").header("x-n", "1")
    };
    let mut events = scene.append(&(0..8).map(event).collect::<Vec<_>>()).await;
    let failing = events.pop().unwrap();
    let daemon = scene.site.start().await;
    scene.received(&events).await;
    eventually("one event has failed", async || (scene.rows("FAILED").await == 1).then_some(()))
        .await;
    eventually("the others are archived", async || (scene.db.count("").await == 1).then_some(()))
        .await;
    let me = Caller::anonymous(&daemon);
    let list = format!("{OUTBOX}/events");
    let archived = all_pages(&me, &format!("{list}?status=COMPLETED&limit=3")).await;
    let expected: Vec<i64> = events.iter().rev().map(|event| event.id).collect();
    assert_eq!(archived, expected);
    assert_eq!(all_pages(&me, &format!("{list}?limit=3")).await, [failing.id], "what is live");
    let by = format!("{list}?error=404&aggregate_id=order-7&status=FAILED");
    assert_eq!(ids(&me.get(&by).await), [failing.id]);
    let count = me.get(&format!("{list}/count?status=COMPLETED&event_type=OrderPlaced")).await;
    assert_eq!(count, json!({ "count": 7, "at_least": false }));

    let story = me.get(&format!("{list}/{}", failing.id)).await;
    assert_eq!(
        (&story["event"]["status"], &story["event"]["retry_count"]),
        (&"FAILED".into(), &1.into())
    );
    assert_eq!(
        (&story["content"]["payload"], &story["content"]["headers"]["x-n"]),
        (&"{}".into(), &"1".into())
    );
    assert_eq!(story["content"]["hash"], "verified");
    let attempt = &story["attempts"][0];
    assert!(
        attempt["error"].as_str().unwrap().contains("404") && attempt["took_ms"].is_i64(),
        "{story:#}"
    );
    let found = me.get(&format!("{OUTBOX}/identities/{}", failing.event_id)).await;
    assert_eq!((&found["events"][0]["id"], &found["complete"]), (&failing.id.into(), &true.into()));
    let gone = me.call("GET", &format!("{list}/999999"), "").await;
    assert_problem(&gone, 404, "dead letters", "an event that is not there");

    let table = scene.db.outbox.table();
    scene
        .db
        .execute(&format!("UPDATE {table}_archive SET payload = '[]' WHERE id = {}", events[0].id))
        .await;
    let story = me.get(&format!("{list}/{}", events[0].id)).await;
    assert_eq!(story["content"]["hash"], "mismatch", "{story:#}");
    daemon.stop().await;
}

/// Waits for a few heartbeats of the relay.
async fn heartbeats(caller: &Caller<'_>) {
    let after = async |past: i64| {
        eventually("heartbeats of the relay", async || {
            let beat = caller.get("/api/v1/relays").await[0]["heartbeat"].as_i64();
            beat.filter(|beat| *beat > past)
        })
        .await
    };
    let now = after(-1).await;
    after(now + 3).await;
}

async fn an_outbox_and_a_sink_are_paused_and_resumed(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    let me = Caller::anonymous(&daemon);
    let mut delivered = Vec::new();
    for thing in [OUTBOX, "/api/v1/sinks/api"] {
        let paused = me.post(&format!("{thing}/pause"), &json!({ "note": "maintenance" })).await;
        assert_eq!(
            (&paused["changed"], &paused["paused"]["operator"]),
            (&true.into(), &"local".into())
        );
        let again = me.post(&format!("{thing}/pause"), &json!({})).await;
        assert_eq!(
            (&again["changed"], &again["paused"]["note"]),
            (&false.into(), &"maintenance".into())
        );
        // The pause reaches the relay with a heartbeat; from then on nothing is claimed.
        heartbeats(&me).await;
        let sent = scene.target.count();
        let events = scene.append_orders(2).await;
        heartbeats(&me).await;
        assert_eq!(scene.target.count(), sent, "nothing is sent");
        let resumed = me.post(&format!("{thing}/resume"), &json!({})).await;
        assert_eq!((&resumed["changed"], &resumed["paused"]), (&true.into(), &Value::Null));
        scene.received(&events).await;
        delivered.extend(events);
    }
    let unknown = me.call("POST", "/api/v1/sinks/nowhere/pause", "{}").await;
    assert_problem(&unknown, 404, "nowhere", "a sink that is not there");
    scene.drained().await;
    daemon.stop().await;
    scene.settle_up(&delivered, 0).await;
}

async fn relays_lanes_and_parked_keys_are_shown_and_released(place: Place) {
    let settings = Settings::new().outbox("failing_key", "park").outbox("max_retries", 1);
    let Some(scene) = Scene::open(place, &settings).await else { return };
    let daemon = scene.site.start().await;
    let me = Caller::anonymous(&daemon);
    let mode = me.expect("PUT", &format!("{OUTBOX}/claim"), r#"{"claim":"lanes"}"#, 200).await;
    assert_eq!(mode["claim"], "lanes");
    let relay = eventually("the relay owns all lanes", async || {
        let relays = me.get("/api/v1/relays").await;
        let lanes = relays[0]["serving"][0]["lanes"].as_array().map_or(0, Vec::len);
        (lanes == 64).then(|| relays[0]["relay_id"].clone())
    });
    let relay = relay.await;
    let lanes = me.get(&format!("{OUTBOX}/lanes")).await;
    let lanes = lanes.as_array().unwrap();
    assert!(lanes.len() == 64 && lanes.iter().all(|lane| lane["relay_id"] == relay), "{lanes:?}");

    scene.target.answer(Answer::status(422));
    let order = |n| NewEvent::new("order", "stuck", "OrderPlaced", format!("{n}"));
    let events = scene.append(&[order(1), order(2)]).await;
    eventually("the key is parked, and an event waits behind it", async || {
        let keys = me.get(&format!("{OUTBOX}/blocked-keys")).await;
        let parked = &keys[0];
        let there = parked["parked"] == true && parked["aggregate_id"] == "stuck";
        (there && parked["waiting"] == 1).then_some(())
    })
    .await;
    scene.target.answer(Answer::ok());
    let key = json!({ "aggregate_type": "order", "aggregate_id": "stuck" });
    me.post(&format!("{OUTBOX}/blocked-keys/release"), &key).await;
    let again = me.call("POST", &format!("{OUTBOX}/blocked-keys/release"), &key.to_string()).await;
    assert_problem(&again, 409, "not parked", "a key that goes on");
    scene.received(&events[1..]).await;
    scene.drained().await;

    let sinks = me.get("/api/v1/sinks").await;
    assert_eq!(
        (&sinks[0]["name"], &sinks[0]["outboxes"], &sinks[0]["down"]),
        (&"api".into(), &json!(["orders"]), &json!([]))
    );
    let healthy = |sink: &Value| {
        let known = &sink["destinations"][0];
        let taken = known["state"] == "closed" && known["last_success_at"].is_string();
        taken && known["outbox"] == "orders" && sink["up"] == true
    };
    assert!(healthy(&sinks[0]), "what is up is shown as well: {sinks:#}");
    scene.target.answer(Answer::status(503).body("closed"));
    let more = scene.append_orders(8).await;
    eventually("the sink is shown as down", async || {
        let sinks = me.get("/api/v1/sinks").await;
        let told = sinks[0]["down"].as_array().is_some_and(|down| down.len() == 1);
        let known = &sinks[0]["destinations"][0]["state"];
        (told && sinks[0]["up"] == false && (known == "open" || known == "probing")).then_some(())
    })
    .await;
    let outbox = me.get(OUTBOX).await;
    assert!(outbox["down"][0]["error"].as_str().unwrap().contains("503"), "{outbox:#}");
    scene.target.answer(Answer::ok());
    scene.received(&more).await;
    scene.drained().await;
    eventually("the sink is shown as up again", async || {
        healthy(&me.get("/api/v1/sinks").await[0]).then_some(())
    })
    .await;
    daemon.stop().await;
    scene.settle_up(&[&events[1..], &more].concat(), 1).await;
}

async fn the_ledger_is_read_beside_the_requests(place: Place) {
    let Some(scene) = Scene::open(place, &Settings::new()).await else { return };
    let daemon = scene.site.start().await;
    let me = Caller::anonymous(&daemon);
    let before = me.get("/api/v1/reconcile").await;
    assert!(before["last"].is_null(), "{before}");
    let events = scene.append_orders(4).await;
    scene.received(&events).await;
    scene.drained().await;
    me.post(&format!("{OUTBOX}/pause"), &json!({})).await;
    heartbeats(&me).await;
    let look = async |number: u32| {
        me.expect("POST", "/api/v1/reconcile", "", 202).await;
        eventually(&format!("check {number} of the ledger has ended"), async || {
            let state = me.get("/api/v1/reconcile").await;
            state["running_since"].is_null().then(|| state["last"].clone())
        })
        .await
    };
    let last = look(1).await;
    assert_eq!((&last["balanced"], &last["operator"]), (&true.into(), &"local".into()), "{last:#}");
    assert_eq!(last["outboxes"][0]["delivered"]["count"], 4);
    scene.append_orders(1).await;
    scene.db.execute(&format!("DELETE FROM {}", scene.db.outbox.table())).await;
    let last = look(2).await;
    assert_eq!(
        (&last["balanced"], &last["outboxes"][0]["balanced"]),
        (&false.into(), &false.into())
    );
    assert_eq!(last["outboxes"][0]["unbalanced"].as_array().unwrap().len(), 1, "{last:#}");
    daemon.stop().await;
}

async fn what_is_exported_can_be_imported(place: Place) {
    let Some((scene, daemon, tokens, events)) = with_dead_letters(place, &["A", "B", "A"]).await
    else {
        return;
    };
    let (viewer, ada) = (Caller::with(&daemon, &tokens[0]), Caller::with(&daemon, &tokens[2]));
    let exported =
        viewer.call("GET", &format!("{OUTBOX}/dead-letters/export?event_type=A"), "").await;
    assert_eq!(exported.status, 200, "{exported:?}");
    assert_eq!(exported.headers["content-type"], "application/x-ndjson");
    assert_eq!(exported.body.lines().count(), 2, "{}", exported.body);
    let import = async |body: &str| {
        let bearer = format!("Bearer {}", ada.token.unwrap());
        let headers = [("content-type", "application/x-ndjson"), ("authorization", &*bearer)];
        let path = "/api/v1/dead-letters/import";
        let send = postrider_testkit::http_client::send;
        send(daemon.address(), "POST", path, &headers, body.to_owned()).await.unwrap()
    };
    let known = import(&exported.body).await.json();
    assert_eq!((&known["known"], &known["restored"]), (&2.into(), &0.into()), "{known}");
    scene.db.execute(&format!("DELETE FROM {}_dlq", scene.db.outbox.table())).await;
    let damaged = exported.body.replacen("order-0", "order-9", 1);
    let report = import(&damaged).await.json();
    assert_eq!(
        (&report["restored"], &report["damaged"][0]["line"]),
        (&1.into(), &2.into()),
        "{report}"
    );
    let report = import(&exported.body).await.json();
    assert_eq!((&report["restored"], &report["known"]), (&1.into(), &1.into()), "{report}");
    let all = all_pages(&viewer, &format!("{OUTBOX}/dead-letters?limit=9")).await;
    let shown = viewer.get(&format!("{OUTBOX}/dead-letters/{}", all[0])).await;
    assert!(
        [&events[0], &events[2]].iter().any(|e| shown["dead_letter"]["event_id"] == e.event_id)
    );
    assert_eq!(shown["content"]["hash"], "verified");
    let wrong = ada.call("POST", "/api/v1/dead-letters/import", "{}").await;
    assert_problem(&wrong, 415, "x-ndjson", "another type");
    let audit = viewer.get("/api/v1/audit?action=dlq.import").await;
    assert!(audit["rows"].as_array().unwrap().iter().all(|row| row["operator"] == "ada"));
    daemon.stop().await;
}
