//! Bulk jobs that nobody works on: the relay that keeps house for their outbox takes them; for a
//! replay into another outbox, the first that serves both.

use std::sync::Arc;
use std::time::Duration;

use postrider::store::{Database, Job};
use postrider::{JobRunner, Outbox};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::heart::Roll;
use crate::waker::Waker;

/// Jobs at the same time: one that waits for its canary does not hold up the others.
const JOBS_MAX: usize = 4;
/// Between looks for a job.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Works on jobs that are this relay's to take, until cut off. A job that was begun is
/// finished even when another relay does so by then: it is fenced by its runner.
pub(crate) async fn keep_running(
    store: Arc<dyn Database>,
    outboxes: Vec<Outbox>,
    host: String,
    rolls: watch::Receiver<Roll>,
    waker: Waker,
) {
    let mut places = JoinSet::new();
    for _ in 0..JOBS_MAX {
        // Each place is a runner of its own: they must not take each other's jobs.
        let runner = JobRunner::new(Arc::clone(&store), outboxes.clone(), &host);
        places.spawn(keep_one(runner, rolls.clone(), waker.clone()));
    }
    while places.join_next().await.is_some() {}
}

async fn keep_one(runner: JobRunner, rolls: watch::Receiver<Roll>, waker: Waker) {
    loop {
        let roll = rolls.borrow().clone();
        let mine = |job: &Job| {
            let outbox = job.outbox.as_str();
            roll.leads_both(outbox, job.work.target_outbox().unwrap_or(outbox))
        };
        match runner.next(mine).await {
            Ok(Some(job)) => {
                work(&runner, &job, &waker).await;
                continue;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "no look for jobs; trying again"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn work(runner: &JobRunner, job: &Job, waker: &Waker) {
    let (id, kind, outbox) = (job.id, job.work.kind(), job.outbox.as_str());
    tracing::info!(job = id, kind, outbox, "job taken");
    match runner.run(id, &mut |_| waker.wake()).await {
        Ok(Some(job)) => tracing::info!(
            job = id,
            kind,
            outbox,
            state = job.state.as_str(),
            done = job.done_count,
            reason = job.reason,
            "job ended"
        ),
        Ok(None) => tracing::info!(job = id, "job is another runner's"),
        Err(error) => tracing::warn!(job = id, %error, "job left to the next runner"),
    }
}
