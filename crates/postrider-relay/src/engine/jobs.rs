//! Runs bulk jobs that have no runner: the relay that leads their outbox takes them; for a replay
//! into another outbox, the oldest relay that serves both.

use std::sync::Arc;
use std::time::Duration;

use postrider::Outbox;
use postrider_store::{Database, Job, JobRunner};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::lease::Membership;
use crate::waker::Waker;

/// Jobs that run at the same time, so that a job waiting for its canary does not delay the others.
const JOBS_MAX: usize = 4;
/// Interval between checks for a job.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs the jobs that this relay may take, until the task is aborted. A job that was started is
/// finished even if another relay becomes responsible for its outbox meanwhile: the job is fenced
/// by its runner.
pub(crate) async fn keep_running(
    store: Arc<dyn Database>,
    outboxes: Vec<Outbox>,
    host: String,
    memberships: watch::Receiver<Membership>,
    waker: Waker,
) {
    let mut places = JoinSet::new();
    for _ in 0..JOBS_MAX {
        // Each slot has its own runner, so that slots do not take each other's jobs.
        let runner = JobRunner::new(Arc::clone(&store), outboxes.clone(), &host);
        places.spawn(keep_one(runner, memberships.clone(), waker.clone()));
    }
    while places.join_next().await.is_some() {}
}

async fn keep_one(runner: JobRunner, memberships: watch::Receiver<Membership>, waker: Waker) {
    loop {
        let membership = memberships.borrow().clone();
        let mine = |job: &Job| {
            let outbox = job.outbox.as_str();
            membership.leads_both(outbox, job.work.target_outbox().unwrap_or(outbox))
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
