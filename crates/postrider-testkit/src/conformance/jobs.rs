//! Bulk jobs.

use std::time::Duration;

use postrider::{NewEvent, Outbox};
use postrider_store::{
    Canary, CountLimit, Counted, DeadReason, Dedupe, DlqFilter, EventFilter, Job, JobFilter,
    JobRunner, JobState, JobWork, Lease, NewJob, OnSuccess, Page, REPLAY_HEADER, Status,
    StoreError,
};

use super::steps::death;
use crate::TestDb;

const QUIET: Duration = Duration::from_secs(60);

/// Returns a job that retries everything, by "ann".
pub(crate) fn retry_all() -> NewJob {
    let work = JobWork::DlqRetry { filter: DlqFilter::default() };
    new_job(work)
}

fn new_job(work: JobWork) -> NewJob {
    let (operator, note) = ("ann".to_owned(), "they are back".to_owned());
    NewJob { work, operator, note, rate: None, canary: None, request_key: None }
}

impl TestDb {
    /// Creates this many dead letters of the relay; returns their ids.
    pub async fn move_many_to_dlq(&self, relay: &Lease, count: u64) -> Vec<i64> {
        self.append_orders(count).await;
        let claimed = self.claim(relay, u32::try_from(count).unwrap()).await;
        let dead: Vec<_> = claimed
            .iter()
            .map(|event| death(event, DeadReason::Exhausted, "out of attempts"))
            .collect();
        let settled = self.store.settle_dead(&self.outbox, relay, &dead).await.unwrap();
        assert_eq!(settled.rows, count);
        self.letters().await
    }

    /// Returns the ids of the unresolved dead letters, oldest first.
    pub async fn letters(&self) -> Vec<i64> {
        let filter = DlqFilter { resolved: Some(false), ..DlqFilter::default() };
        let page = Page::first(10_000).within(Duration::MAX);
        let listed = self.store.dead_letters(&self.outbox, &filter, page).await.unwrap();
        listed.rows.iter().rev().map(|letter| letter.id).collect()
    }

    /// Creates a job and takes it under the name "runner-a".
    pub async fn taken_job(&self, job: &NewJob) -> Job {
        let made = self.store.create_job(&self.outbox, job).await.unwrap();
        assert_eq!(made.state, JobState::Waiting);
        self.store.take_job(made.id, "runner-a", QUIET).await.unwrap().unwrap()
    }

    /// Runs one step of a job with a runner.
    pub async fn step(&self, job: &Job, runner: &str, chunk: u32) -> Option<Job> {
        self.store.step_job(&self.outbox, None, job.id, runner, chunk).await.unwrap()
    }
}

/// A job acts on the matching entries that existed when it was created, oldest first, and audits
/// them.
pub async fn a_bulk_retry_sends_what_fits_its_filter_in_order(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let letters = db.move_many_to_dlq(&relay, 5).await;
    db.store.resolve(&db.outbox, letters[1], "bob", "by hand").await.unwrap();
    let limit = CountLimit::NONE;
    let preview = db.store.preview_job(&db.outbox, &retry_all().work, limit).await.unwrap();
    assert_eq!(preview, Counted { count: 4, at_least: false });
    let job = db.taken_job(&retry_all()).await;
    assert_eq!((job.state, job.max_id), (JobState::Running, letters[4]));
    // A later dead letter is not touched.
    db.append_orders(1).await;
    let later = db.claim(&relay, 1).await;
    let later = db.move_to_dlq(&relay, &later[0], "later").await;

    let mut done = Vec::new();
    let mut job = job;
    while job.state.is_open() {
        job = db.step(&job, "runner-a", 2).await.unwrap();
        done.push(job.done_count);
    }
    assert_eq!((job.state, job.progress(), job.runner), (JobState::Done, 1.0, None));
    assert_eq!(done, [2, 4, 4], "in steps, and a last look");
    assert_eq!(db.letters().await, [later]);
    let events = db.claim(&relay, 10).await;
    let orders: Vec<_> = events.iter().map(|event| event.aggregate_id.as_str()).collect();
    assert_eq!(orders.len(), 4);
    assert!(orders.is_sorted(), "in the order of the dead letters: {orders:?}");
    assert!(events.iter().all(|event| event.redrive_count == 1 && event.retry_count == 0));
    let letter = db.store.dead_letter(&db.outbox, letters[0]).await.unwrap().unwrap();
    assert_eq!(letter.retried_as, Some(events[0].id));
    assert_eq!(letter.event_id, events[0].event_id);
    assert_eq!(letter.resolved_by.as_deref(), Some("ann"));
    assert_eq!(letter.resolution_note.as_deref(), Some("they are back"));
    let trail = db.trail().await;
    let retries: Vec<_> = trail.iter().filter(|entry| entry.action == "dlq.retry").collect();
    assert_eq!(retries.len(), 4);
    assert!(retries.iter().all(|entry| entry.operator == "ann" && entry.outbox == "orders"));
    assert!(trail.iter().any(|entry| entry.action == "job.create"));
    db.assert_balanced().await;
}

/// A step of large events is limited by their size: a transaction holds 8 MiB of them, not 500
/// rows.
pub async fn a_step_of_large_events_is_cut_by_their_weight(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let text = "x".repeat(3 * 1024 * 1024);
    let event = |n: &str| NewEvent::new("order", n, "Placed", text.clone());
    db.append(&["1", "2", "3", "4", "5"].map(event)).await;
    for _ in 0..5 {
        let claimed = db.claim(&relay, 1).await;
        db.move_to_dlq(&relay, &claimed[0], "no").await;
    }
    let mut job = db.taken_job(&retry_all()).await;
    let mut done = Vec::new();
    while job.state.is_open() {
        job = db.step(&job, "runner-a", 500).await.unwrap();
        done.push(job.done_count);
    }
    assert_eq!(done, [2, 4, 5, 5]);
    db.assert_balanced().await;
}

/// Resolving in bulk sends nothing.
pub async fn a_bulk_resolve_resolves_and_sends_nothing(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let letters = db.move_many_to_dlq(&relay, 3).await;
    let filter = DlqFilter { reason: Some(DeadReason::Exhausted), ..DlqFilter::default() };
    let job = db.taken_job(&new_job(JobWork::DlqResolve { filter })).await;
    let job = db.step(&job, "runner-a", 10).await.unwrap();
    assert_eq!((job.done_count, job.skipped_count), (3, 0));
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Done);
    assert_eq!(db.count("").await, 0);
    let letter = db.store.dead_letter(&db.outbox, letters[2]).await.unwrap().unwrap();
    assert_eq!((letter.resolved, letter.retried_as), (true, None));
}

/// A filter without matches costs steps, not memory, and the job ends.
pub async fn a_job_that_nothing_fits_ends(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 3).await;
    let filter = DlqFilter { event_type: Some("Other".to_owned()), ..DlqFilter::default() };
    let mut job = db.taken_job(&new_job(JobWork::DlqRetry { filter })).await;
    while job.state.is_open() {
        job = db.step(&job, "runner-a", 10).await.unwrap();
    }
    assert_eq!((job.state, job.done_count), (JobState::Done, 0));
    assert_eq!(db.letters().await.len(), 3);
}

/// After a runner died, another continues at the cursor; a late step of the dead one does nothing.
pub async fn a_job_of_a_dead_runner_is_taken_over_at_its_cursor(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let letters = db.move_many_to_dlq(&relay, 4).await;
    let job = db.taken_job(&retry_all()).await;
    let job = db.step(&job, "runner-a", 2).await.unwrap();
    let take = async |runner: &str| db.store.take_job(job.id, runner, QUIET).await.unwrap();
    assert!(take("runner-b").await.is_none(), "its runner gave a sign of life");
    assert!(take("runner-a").await.is_some(), "it is its own");
    db.age("postrider_jobs", "beat_at", QUIET * 2, "1 = 1").await;
    let taken = take("runner-b").await.unwrap();
    assert_eq!((taken.cursor, taken.done_count), (letters[1], 2));
    assert!(db.step(&job, "runner-a", 2).await.is_none(), "fenced");
    assert_eq!(db.count("").await, 2);
    let job = db.step(&taken, "runner-b", 10).await.unwrap();
    assert_eq!(job.done_count, 4);
    assert_eq!(db.count("").await, 4);
    db.assert_balanced().await;
}

/// Two concurrent runners never act on the same entry.
pub async fn steps_of_two_runners_never_share_an_entry(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 60).await;
    let first = db.taken_job(&retry_all()).await;
    let second = db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    let second = db.store.take_job(second.id, "runner-b", QUIET).await.unwrap().unwrap();
    let run = |job: Job, runner: &'static str| {
        let db = db.clone();
        async move {
            let mut job = job;
            while job.state.is_open() {
                let step = db.store.step_job(&db.outbox, None, job.id, runner, 7).await;
                match step {
                    Ok(stepped) => job = stepped.unwrap(),
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
            job
        }
    };
    let (first, second) = tokio::join!(run(first, "runner-a"), run(second, "runner-b"));
    assert_eq!(first.done_count + second.done_count, 60, "{first:?} {second:?}");
    assert_eq!(db.count("").await, 60);
    db.assert_balanced().await;
}

/// An operator stops a job: its runner notices, and resuming continues where it was.
pub async fn a_stopped_job_goes_on_where_it_was(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let letters = db.move_many_to_dlq(&relay, 3).await;
    let job = db.taken_job(&retry_all()).await;
    let job = db.step(&job, "runner-a", 1).await.unwrap();
    let stopped = db.store.stop_job(job.id, "bob", "wait").await.unwrap();
    assert_eq!((stopped.state, stopped.runner), (JobState::Stopped, None));
    assert!(stopped.reason.unwrap().contains("bob"));
    assert!(db.step(&job, "runner-a", 1).await.is_none());
    assert!(db.store.take_job(job.id, "runner-a", QUIET).await.unwrap().is_none());
    let resumed = db.store.resume_job(job.id, "bob", "go").await.unwrap();
    assert_eq!((resumed.state, resumed.cursor), (JobState::Waiting, letters[0]));
    let job = db.store.take_job(job.id, "runner-b", QUIET).await.unwrap().unwrap();
    assert_eq!(db.step(&job, "runner-b", 10).await.unwrap().done_count, 3);

    assert!(!db.store.end_job(job.id, "runner-a", JobState::Failed, "not mine").await.unwrap());
    assert!(db.store.job(job.id).await.unwrap().unwrap().state.is_open());
    assert!(db.store.end_job(job.id, "runner-b", JobState::Failed, "disk full").await.unwrap());
    let failed = db.store.job(job.id).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.reason.as_deref()), (JobState::Failed, Some("disk full")));
    let actions: Vec<_> = db.trail().await.into_iter().map(|entry| entry.action).collect();
    assert!(
        ["job.create", "job.stop", "job.resume"].iter().all(|a| actions.iter().any(|b| a == b))
    );
}

/// An invalid job is refused with a reason.
pub async fn jobs_that_make_no_sense_are_refused(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 1).await;
    let resolve = || new_job(JobWork::DlqResolve { filter: DlqFilter::default() });
    let canary = |count, within_s| Some(Canary { count, within_s });
    for (job, word) in [
        (NewJob { rate: Some(0), ..retry_all() }, "rate of 0"),
        (NewJob { canary: canary(1, 10), ..resolve() }, "resolving"),
        (NewJob { canary: canary(0, 10), ..retry_all() }, "canary of 0"),
        (NewJob { canary: canary(1, 0), ..retry_all() }, "at least 1 s"),
        (NewJob { canary: canary(1_001, 10), ..retry_all() }, "1000"),
    ] {
        let error = db.store.create_job(&db.outbox, &job).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let refused = async |error: Option<StoreError>, word: &str| {
        let error = error.unwrap().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(db.store.stop_job(77, "ann", "").await.err(), "no job 77").await;
    refused(db.store.resume_job(77, "ann", "").await.err(), "no job 77").await;
    let mut job = db.taken_job(&retry_all()).await;
    refused(db.store.resume_job(job.id, "ann", "").await.err(), "is running").await;
    while job.state.is_open() {
        job = db.step(&job, "runner-a", 10).await.unwrap();
    }
    refused(db.store.stop_job(job.id, "ann", "").await.err(), "is done").await;
    refused(db.store.resume_job(job.id, "ann", "").await.err(), "is done").await;
    assert!(db.store.job(0).await.unwrap().is_none());
}

/// The canary events are sent alone; once they are delivered, the rest follows.
pub async fn the_rest_follows_when_the_canary_is_delivered(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 5).await;
    let canary = Some(Canary { count: 2, within_s: 600 });
    let job = db.taken_job(&NewJob { canary, ..retry_all() }).await;
    let job = db.step(&job, "runner-a", 10).await.unwrap();
    assert_eq!((job.state, job.done_count), (JobState::Canary, 2));
    let waiting = db.step(&job, "runner-a", 10).await.unwrap();
    assert_eq!((waiting.state, waiting.done_count), (JobState::Canary, 2), "nothing is sent");
    let first = db.claim(&relay, 10).await;
    assert_eq!(first.len(), 2);
    db.deliver(&relay, &first[..1], OnSuccess::Delete).await;
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Canary);
    db.deliver(&relay, &first[1..], OnSuccess::Delete).await;
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().state, JobState::Running);
    assert_eq!(db.step(&job, "runner-a", 10).await.unwrap().done_count, 5);
}

/// A canary that dies again, or is not delivered in time, stops the job before the rest is sent.
pub async fn a_canary_that_fails_stops_the_job(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 6).await;
    let canary = Some(Canary { count: 1, within_s: 600 });
    let job = db.taken_job(&NewJob { canary, ..retry_all() }).await;
    db.step(&job, "runner-a", 10).await.unwrap();
    let first = db.claim(&relay, 10).await;
    db.move_to_dlq(&relay, &first[0], "still no").await;
    let stopped = db.step(&job, "runner-a", 10).await.unwrap();
    assert_eq!((stopped.state, stopped.done_count), (JobState::Stopped, 1));
    assert!(stopped.reason.unwrap().contains("dead letters again"));

    // The operator has seen it, and wants to send the rest anyway.
    db.store.resume_job(job.id, "ann", "known").await.unwrap();
    let job = db.store.take_job(job.id, "runner-a", QUIET).await.unwrap().unwrap();
    assert_eq!(db.step(&job, "runner-a", 2).await.unwrap().done_count, 3);

    let late = db.taken_job(&NewJob { canary, ..retry_all() }).await;
    db.step(&late, "runner-a", 10).await.unwrap();
    let table = "postrider_jobs";
    db.age(table, "canary_until", Duration::from_secs(700), &format!("id = {}", late.id)).await;
    let stopped = db.step(&late, "runner-a", 10).await.unwrap();
    assert_eq!(stopped.state, JobState::Stopped);
    assert!(stopped.reason.unwrap().contains("not delivered after 600 s"));
}

/// Jobs are listed newest first, by outbox and state.
pub async fn jobs_are_listed_by_outbox_and_state(db: TestDb) {
    let other = db.add_outbox(Dedupe::default()).await;
    let first = db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    let second = db.store.create_job(&other, &retry_all()).await.unwrap();
    let third = db.taken_job(&retry_all()).await;
    db.step(&third, "runner-a", 1).await.unwrap();
    let list = async |filter: JobFilter, before: Option<i64>| {
        let jobs = db.store.jobs(&filter, before, 10).await.unwrap();
        jobs.iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let any = JobFilter::default;
    assert_eq!(list(any(), None).await, [third.id, second.id, first.id]);
    assert_eq!(list(any(), Some(third.id)).await, [second.id, first.id]);
    let of = JobFilter { outbox: Some(other.name().to_owned()), ..any() };
    assert_eq!(list(of, None).await, [second.id]);
    assert_eq!(list(JobFilter { open: true, ..any() }, None).await, [second.id, first.id]);
    let done = JobFilter { state: Some(JobState::Done), ..any() };
    assert_eq!(list(done, None).await, [third.id], "nothing to do is done at once");
    let read = db.store.job(first.id).await.unwrap().unwrap();
    assert_eq!(read.work, retry_all().work);
}

/// The runner completes a job, reports each step, and keeps the requested rate.
pub async fn the_runner_works_a_job_through(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.move_many_to_dlq(&relay, 20).await;
    let runner = runner(&db, std::slice::from_ref(&db.outbox)).chunk(6);
    let made = db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    let next = runner.next(|_| true).await.unwrap().unwrap();
    assert_eq!(next.id, made.id);
    let mut told = Vec::new();
    let mut tell = |job: &Job| told.push(job.done_count);
    let job = runner.run(made.id, &mut tell).await.unwrap().unwrap();
    assert_eq!((job.state, job.done_count), (JobState::Done, 20));
    assert_eq!(told, [0, 6, 12, 18, 20, 20]);
    assert!(runner.next(|_| true).await.unwrap().is_none());

    let letters = db.move_many_to_dlq(&relay, 30).await;
    assert_eq!(letters.len(), 30);
    let rated = NewJob { rate: Some(60), ..retry_all() };
    let made = db.store.create_job(&db.outbox, &rated).await.unwrap();
    let started = std::time::Instant::now();
    let job = runner.run(made.id, &mut |_| {}).await.unwrap().unwrap();
    assert_eq!(job.done_count, 30);
    assert!(started.elapsed() >= Duration::from_millis(400), "30 events at 60 per second");

    let other = Outbox::new("elsewhere").unwrap();
    let stranger = self::runner(&db, &[other]);
    db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    assert!(stranger.next(|_| true).await.unwrap().is_none(), "its outbox is not configured there");
}

/// A runner finds its own job behind many jobs of others; the oldest first.
pub async fn a_runner_finds_its_job_behind_many_others(db: TestDb) {
    let other = db.add_outbox(Dedupe::default()).await;
    let oldest = db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    for _ in 0..100 {
        db.store.create_job(&other, &retry_all()).await.unwrap();
    }
    let runner = runner(&db, std::slice::from_ref(&db.outbox));
    assert_eq!(runner.next(|_| true).await.unwrap().unwrap().id, oldest.id);
}

fn runner(db: &TestDb, outboxes: &[Outbox]) -> JobRunner {
    JobRunner::new(db.store.clone(), outboxes.to_vec(), "test-host")
}

/// Archived events are sent again with their event id and hash, marked, and each once.
pub async fn a_replay_sends_archived_events_again(db: TestDb) {
    let relay = db.relay("relay-a").await;
    let event = |kind: &str, n: u32| {
        let event = NewEvent::new("order", n.to_string(), kind, format!("{{\"n\":{n}}}"));
        event.request_id(format!("r-{n}")).header("tenant", "a")
    };
    db.append(&[event("Paid", 1), event("Placed", 2), event("Paid", 3)]).await;
    // Numbers as another program may write them.
    let exact = [r#""price":2.50"#, r#""number":12345678901234567890123"#];
    let headers = format!(r#"{{"tenant":"a",{}}}"#, exact.join(","));
    db.execute(&format!("UPDATE {} SET headers = '{headers}'", db.outbox.table())).await;
    let delivered = db.claim(&relay, 10).await;
    db.deliver(&relay, &delivered, OnSuccess::Archive).await;
    let paid = EventFilter { event_type: Some("Paid".to_owned()), ..EventFilter::default() };
    let work = JobWork::Replay { filter: paid, into: None };
    let preview = db.store.preview_job(&db.outbox, &work, CountLimit::NONE).await.unwrap();
    assert_eq!(preview.count, 2);
    let made = db.store.create_job(&db.outbox, &new_job(work)).await.unwrap();
    let runner = runner(&db, std::slice::from_ref(&db.outbox)).chunk(1);
    let job = runner.run(made.id, &mut |_| {}).await.unwrap().unwrap();
    assert_eq!((job.state, job.done_count), (JobState::Done, 2));
    let again = db.claim(&relay, 10).await;
    for (event, original) in again.iter().zip([&delivered[0], &delivered[2]]) {
        assert_eq!(event.event_id, original.event_id);
        assert_eq!(event.content_hash, original.content_hash);
        assert_eq!(event.request_id, original.request_id);
        assert_eq!(event.hash_matches(), Some(true));
        let headers = event.headers().unwrap();
        assert_eq!(headers[REPLAY_HEADER], made.id.to_string());
        assert_eq!(headers["tenant"], "a");
        let text = event.headers.as_deref().unwrap().replace(": ", ":");
        assert!(exact.iter().all(|kept| text.contains(kept)), "{text}");
    }
    assert_eq!(again.len(), 2);
    db.deliver(&relay, &again, OnSuccess::Archive).await;
    assert_eq!(db.count("_archive").await, 5);
    let trail = db.trail().await;
    assert_eq!(trail.iter().filter(|entry| entry.action == "event.replay").count(), 2);
    db.assert_balanced().await;
}

/// A second replay after the copies were delivered sends each event once more, not twice, and the
/// dry run agrees. Copies are sent if the filter asks for them.
pub async fn a_second_replay_sends_each_event_once(db: TestDb) {
    let relay = db.relay("relay-a").await;
    db.append_orders(2).await;
    let delivered = db.claim(&relay, 10).await;
    db.deliver(&relay, &delivered, OnSuccess::Archive).await;
    let replay = |replayed| {
        let filter = EventFilter { replayed, ..EventFilter::default() };
        JobWork::Replay { filter, into: None }
    };
    for (replayed, sent) in [(None, 2), (None, 2), (Some(true), 4), (Some(false), 2)] {
        let work = replay(replayed);
        let preview = db.store.preview_job(&db.outbox, &work, CountLimit::NONE).await.unwrap();
        assert_eq!(preview.count, sent, "{replayed:?}");
        let made = db.store.create_job(&db.outbox, &new_job(work)).await.unwrap();
        let runner = runner(&db, std::slice::from_ref(&db.outbox));
        let job = runner.run(made.id, &mut |_| {}).await.unwrap().unwrap();
        assert_eq!((job.state, job.done_count), (JobState::Done, sent), "{replayed:?}");
        let copies = db.claim(&relay, 10).await;
        assert_eq!(copies.len() as i64, sent, "{replayed:?}");
        db.deliver(&relay, &copies, OnSuccess::Archive).await;
    }
    db.assert_balanced().await;
}

/// A replay can go to a single branch of a fan-out.
pub async fn a_replay_goes_into_the_outbox_that_it_names(db: TestDb) {
    let child = db.add_outbox(Dedupe::default()).await;
    let relay = db.relay("relay-a").await;
    db.append_orders(3).await;
    let delivered = db.claim(&relay, 10).await;
    db.deliver(&relay, &delivered, OnSuccess::Archive).await;
    let into = Some(child.name().to_owned());
    let work = JobWork::Replay { filter: EventFilter::default(), into };
    let canary = Some(Canary { count: 1, within_s: 600 });
    let job = NewJob { canary, ..new_job(work) };
    let made = db.store.create_job(&db.outbox, &job).await.unwrap();
    let only_parent = runner(&db, std::slice::from_ref(&db.outbox));
    assert!(
        only_parent.next(|_| true).await.unwrap().is_none(),
        "the child is not configured there"
    );
    let refused = only_parent.run(made.id, &mut |_| {}).await.unwrap_err();
    assert!(refused.to_string().contains(child.name()), "{refused}");

    db.age("postrider_jobs", "beat_at", QUIET * 2, "1 = 1").await;
    let taken = db.store.take_job(made.id, "runner-a", QUIET).await.unwrap().unwrap();
    let step = async || {
        let step = db.store.step_job(&db.outbox, Some(&child), taken.id, "runner-a", 10);
        step.await.unwrap().unwrap()
    };
    assert_eq!(step().await.state, JobState::Canary);
    let there = db.clone().with_outbox(child.clone());
    let first = there.claim(&relay, 10).await;
    assert_eq!(first[0].event_id, delivered[0].event_id);
    there.deliver(&relay, &first, OnSuccess::Delete).await;
    assert_eq!(step().await.state, JobState::Running, "looked after in the child");
    assert_eq!(step().await.done_count, 3);
    assert_eq!((db.count("").await, there.count("").await), (0, 2));
    there.assert_balanced().await;
    db.assert_balanced().await;
    let live = there.store.events(&child, &EventFilter::default(), Page::first(5)).await.unwrap();
    assert!(live.rows.iter().all(|event| event.status == Status::Pending));
}

/// A caller that did not receive the answer to its request repeats it and finds the job; no second
/// one is created.
pub async fn a_request_key_makes_one_job_however_often_the_answer_is_lost(db: TestDb) {
    let keyed = NewJob { request_key: Some("ann/night-1".to_owned()), ..retry_all() };
    assert_eq!(db.store.job_by_request_key("ann/night-1").await.unwrap(), None);
    let made = db.store.create_job(&db.outbox, &keyed).await.unwrap();
    let again = db.store.create_job(&db.outbox, &keyed).await.unwrap_err();
    assert!(matches!(&again, StoreError::Refused(why) if why.contains("ann/night-1")), "{again:?}");
    let known = db.store.job_by_request_key("ann/night-1").await.unwrap().unwrap();
    assert_eq!(known.id, made.id);
    db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    db.store.create_job(&db.outbox, &retry_all()).await.unwrap();
    assert_eq!(db.store.jobs(&JobFilter::default(), None, 9).await.unwrap().len(), 3, "none else");
    let long = NewJob { request_key: Some("x".repeat(201)), ..retry_all() };
    let error = db.store.create_job(&db.outbox, &long).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(why) if why.contains("200")));
}
