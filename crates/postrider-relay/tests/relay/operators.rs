//! Operators' actions reach every relay: pauses, bulk jobs, rules for automatic retry.

use std::time::Duration;

use postrider::{NewEvent, Outbox};
use postrider_relay::{AutoRetry, ErrorPattern, OutboxConfig, Relay};
use postrider_store::{
    Canary, ClaimMode, Dedupe, DlqFilter, EventFilter, JobState, JobWork, NewJob, OnSuccess,
    PauseKind,
};
use postrider_testkit::{
    TempFolder, TestDb, eventually, on_each_store,
    relay::{Act, RunningRelay, ScriptedSink, quick_config, quick_preset},
};

on_each_store!(
    a_paused_outbox_starts_nothing_until_it_is_resumed,
    a_paused_sink_lets_what_is_in_flight_finish_and_starts_nothing_more,
    a_pause_holds_in_lanes_and_gives_them_back,
    a_job_that_nobody_runs_is_worked_on_by_the_leader,
    a_canary_that_is_refused_again_stops_the_job_of_the_leader,
    a_replay_into_an_outbox_that_the_leader_does_not_serve_is_run_by_one_that_serves_both,
    dead_letters_that_fit_a_rule_are_sent_again_so_often_and_no_more,
    a_rule_sends_in_the_order_of_the_dead_letters_and_passes_one_that_cannot_be_sent,
);

/// Waits for `beats` heartbeats, after which the relays have read what operators wrote before.
async fn heartbeats(db: &TestDb, beats: i64) {
    let total = async || {
        let pulses = db.store.relays().await.unwrap();
        pulses.iter().map(|pulse| pulse.heartbeat).sum::<i64>()
    };
    let target = total().await + beats;
    eventually("the relay beats on", async || (total().await >= target).then_some(())).await;
}

/// The pause was made before the relay started: it is a row, and survives restarts.
async fn a_paused_outbox_starts_nothing_until_it_is_resumed(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.store.pause(PauseKind::Outbox, "orders", "olga", "upgrade").await.unwrap();
    db.append_orders(5).await;
    let relay = RunningRelay::quick(&db, &folder, &sink);
    eventually("the relay is there", async || {
        (!db.store.relays().await.unwrap().is_empty()).then_some(())
    })
    .await;
    heartbeats(&db, 5).await;
    assert!(sink.log().calls.is_empty(), "nothing is begun");
    db.store.resume(PauseKind::Outbox, "orders", "olga", "done").await.unwrap();
    sink.until_delivered(5).await;
    relay.stop().await;
    db.assert_balanced().await;
}

async fn a_paused_sink_lets_what_is_in_flight_finish_and_starts_nothing_more(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().gated().shared());
    let relay = RunningRelay::quick(&db, &folder, &sink);
    db.append_orders(3).await;
    sink.until("a batch is in flight", |log| log.calls_now > 0).await;
    db.store.pause(PauseKind::Sink, "scripted", "olga", "").await.unwrap();
    heartbeats(&db, 3).await;
    db.append_orders(4).await;
    sink.open();
    let in_flight = sink.log().calls.concat().len();
    sink.until_delivered(in_flight).await;
    let rest = i64::try_from(7 - in_flight).unwrap();
    eventually("it is settled", async || (db.count("").await == rest).then_some(())).await;
    heartbeats(&db, 5).await;
    assert_eq!(sink.log().calls.concat().len(), in_flight, "nothing more is begun");
    let held = "SELECT count(*) FROM orders_outbox WHERE status = 'PROCESSING'";
    assert_eq!(db.integer(held).await, 0, "nothing is held meanwhile");
    db.store.resume(PauseKind::Sink, "scripted", "olga", "").await.unwrap();
    sink.until_delivered(7).await;
    relay.stop().await;
    assert_eq!(sink.log().delivered().len(), 7, "each once");
    db.assert_balanced().await;
}

async fn a_pause_holds_in_lanes_and_gives_them_back(db: TestDb) {
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    db.store.set_mode(&db.outbox, ClaimMode::Lanes, "olga").await.unwrap();
    let relay = RunningRelay::quick(&db, &folder, &sink);
    db.append_orders(20).await;
    sink.until_delivered(20).await;
    db.store.pause(PauseKind::Outbox, "orders", "olga", "").await.unwrap();
    let owned = "SELECT count(*) FROM postrider_lanes WHERE owner IS NOT NULL";
    eventually("all lanes are given back", async || (db.integer(owned).await == 0).then_some(()))
        .await;
    db.append_orders(20).await;
    heartbeats(&db, 5).await;
    assert_eq!(sink.log().calls.concat().len(), 20);
    db.store.resume(PauseKind::Outbox, "orders", "olga", "").await.unwrap();
    sink.until_delivered(40).await;
    relay.stop().await;
    db.assert_balanced().await;
}

fn retry_all(canary: Option<Canary>) -> NewJob {
    let work = JobWork::DlqRetry { filter: DlqFilter::default() };
    let (operator, note) = ("olga".to_owned(), "they are back".to_owned());
    NewJob { work, operator, note, rate: None, canary, request_key: None }
}

async fn a_job_that_nobody_runs_is_worked_on_by_the_leader(db: TestDb) {
    let lease = db.relay("before").await;
    db.move_many_to_dlq(&lease, 30).await;
    db.store.retire(&lease).await.unwrap();
    let canary = Some(Canary { count: 3, within_s: 600 });
    let job = db.store.create_job(&db.outbox, &retry_all(canary)).await.unwrap();
    // A runner took it and died: its last sign of life is long ago.
    db.store.take_job(job.id, "dead-runner", Duration::from_secs(60)).await.unwrap().unwrap();
    db.age("postrider_jobs", "beat_at", Duration::from_secs(3_600), "1 = 1").await;

    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let relays = [(); 2].map(|()| RunningRelay::quick(&db, &folder, &sink));
    sink.until_delivered(30).await;
    let done = eventually("the job is done", async || {
        let job = db.store.job(job.id).await.unwrap().unwrap();
        (!job.state.is_open()).then_some(job)
    })
    .await;
    assert_eq!((done.state, done.done_count), (JobState::Done, 30));
    for relay in relays {
        relay.stop().await;
    }
    assert_eq!(sink.log().delivered().len(), 30, "each once");
    db.assert_balanced().await;
}

async fn a_canary_that_is_refused_again_stops_the_job_of_the_leader(db: TestDb) {
    let lease = db.relay("before").await;
    db.move_many_to_dlq(&lease, 10).await;
    db.store.retire(&lease).await.unwrap();
    let canary = Some(Canary { count: 2, within_s: 600 });
    let job = db.store.create_job(&db.outbox, &retry_all(canary)).await.unwrap();
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(|_, _| Act::reject("still no")).shared();
    let relay = RunningRelay::quick(&db, &folder, &sink);
    let ended = eventually("the job ends", async || {
        let job = db.store.job(job.id).await.unwrap().unwrap();
        (!job.state.is_open()).then_some(job)
    })
    .await;
    relay.stop().await;
    assert_eq!((ended.state, ended.done_count), (JobState::Stopped, 2));
    assert_eq!(db.letters().await.len(), 10, "two of them a second time");
    db.assert_balanced().await;
}

async fn a_replay_into_an_outbox_that_the_leader_does_not_serve_is_run_by_one_that_serves_both(
    db: TestDb,
) {
    let child = db.add_outbox(Dedupe::default()).await;
    let lease = db.relay("before").await;
    db.append_orders(4).await;
    let delivered = db.claim(&lease, 10).await;
    db.deliver(&lease, &delivered, OnSuccess::Archive).await;
    db.store.retire(&lease).await.unwrap();
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let first = RunningRelay::quick(&db, &folder, &sink);
    eventually("the first relay is there", async || {
        (db.store.relays().await.unwrap().len() == 1).then_some(())
    })
    .await;
    let config = |outbox: &Outbox| OutboxConfig::new(outbox.clone(), quick_preset(), sink.clone());
    let both = Relay::new(db.store.clone(), quick_config(&folder))
        .outbox(config(&db.outbox))
        .outbox(config(&child));
    let second = RunningRelay::start(both);
    let into = Some(child.name().to_owned());
    let work = JobWork::Replay { filter: EventFilter::default(), into };
    let job = db.store.create_job(&db.outbox, &NewJob { work, ..retry_all(None) }).await.unwrap();
    sink.until_delivered(4).await;
    eventually("the job is done", async || {
        let job = db.store.job(job.id).await.unwrap().unwrap();
        (job.state == JobState::Done).then_some(())
    })
    .await;
    first.stop().await;
    second.stop().await;
    db.assert_balanced().await;
}

async fn a_rule_sends_in_the_order_of_the_dead_letters_and_passes_one_that_cannot_be_sent(
    db: TestDb,
) {
    let lease = db.relay("before").await;
    let letters = db.move_many_to_dlq(&lease, 4).await;
    db.store.retire(&lease).await.unwrap();
    // The outbox does not accept such headers; the table of dead letters accepts anything.
    let spoil = "UPDATE orders_outbox_dlq SET headers = '[]' WHERE id =";
    db.execute(&format!("{spoil} {}", letters[1])).await;
    let rule = AutoRetry {
        name: "all".to_owned(),
        error: None,
        error_regex: None,
        reason: None,
        event_type: None,
        after: Duration::from_millis(1),
        backoff_factor: 1.0,
        times: 1,
    };
    let (folder, sink) = (TempFolder::new(), ScriptedSink::delivering().shared());
    let outbox = OutboxConfig {
        auto_retry: vec![rule],
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.until_delivered(3).await;
    eventually("they are settled", async || (db.count("").await == 0).then_some(())).await;
    relay.stop().await;
    assert_eq!(db.letters().await, [letters[1]], "left to an operator");
    let mut sent = Vec::new();
    for id in [letters[0], letters[2], letters[3]] {
        let letter = db.store.dead_letter(&db.outbox, id).await.unwrap().unwrap();
        sent.push(letter.retried_as.unwrap());
    }
    assert!(sent.is_sorted(), "what was given up first goes first: {sent:?}");
    db.assert_balanced().await;
}

async fn dead_letters_that_fit_a_rule_are_sent_again_so_often_and_no_more(db: TestDb) {
    let folder = TempFolder::new();
    let sink = ScriptedSink::scripted(|event, _| match event.event_type.as_str() {
        "Late" if event.redrive_count >= 2 => Act::DELIVER,
        "Other" => Act::reject("not for you"),
        _ => Act::reject("no stock of 17"),
    })
    .shared();
    let rule = AutoRetry {
        name: "stock".to_owned(),
        error: Some("NO stock".to_owned()),
        error_regex: Some(ErrorPattern::new(r"of \d+$").unwrap()),
        reason: None,
        event_type: None,
        after: Duration::from_millis(1),
        backoff_factor: 2.0,
        times: 2,
    };
    let outbox = OutboxConfig {
        auto_retry: vec![rule],
        ..OutboxConfig::new(db.outbox.clone(), quick_preset(), sink.clone())
    };
    let event = |kind: &str| NewEvent::new("order", kind, kind, "{}");
    db.append(&["Late", "Never", "Other"].map(event)).await;
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    sink.until_delivered(1).await;
    let redrives = "SELECT max(redrive_count) FROM orders_outbox_dlq WHERE event_type = 'Never'";
    let end = async || {
        // Between two of its retries there are also two dead letters, so they are read last.
        let sent = db.integer(redrives).await == 2 && db.count("").await == 0;
        let letters = db.letters().await;
        (sent && letters.len() == 2).then_some(letters)
    };
    let letters = eventually("two are left to an operator", end).await;
    heartbeats(&db, 10).await;
    relay.stop().await;
    assert_eq!(db.letters().await, letters, "nothing more is sent");
    assert_eq!(db.integer(redrives).await, 2);
    let trail = db.trail().await;
    let retries: Vec<_> =
        trail.iter().filter(|entry| entry.operator == "auto-retry:stock").collect();
    assert_eq!(retries.len(), 4, "two of each that fits: {retries:?}");
    assert!(retries.iter().all(|entry| entry.action == "dlq.retry"));
    db.assert_balanced().await;
}
