//! Saves calls in batches. When an outage begins, the calls of all callers are saved at once, and a
//! commit costs the same for a hundred as for one.

use std::time::Duration;

use postrider::{AppendError, NewEvent, Outbox};
use postrider_store::Appender;
use tokio::sync::{mpsc, oneshot};

/// Calls that wait to be saved. Beyond that, a call fails at once as not saved.
const WAITING_MAX: usize = 10_000;
/// Maximum number of calls per transaction.
const BATCH_MAX: usize = 100;
/// Timeout of one transaction, and of a caller's wait, so that callers do not wait for a database
/// that is down as well.
const SAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether the relay will repeat a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    /// It has just been saved in the outbox.
    New,
    /// It was already in the outbox.
    Repeat,
    /// As far as is known, it is not saved.
    No,
}

/// A request to save a call.
struct Order {
    request_id: String,
    event: NewEvent,
    answer: oneshot::Sender<Saved>,
}

/// Accepts calls to save; its task ends with the last clone.
#[derive(Clone)]
pub(super) struct Saver {
    gateway: String,
    queue: mpsc::Sender<Order>,
}

impl Saver {
    /// Starts the task that saves calls.
    pub(super) fn start(gateway: &str, outbox: Outbox, appender: Appender) -> Self {
        let (queue, mut orders) = mpsc::channel(WAITING_MAX);
        let saver = Self { gateway: gateway.to_owned(), queue };
        let gateway = gateway.to_owned();
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            while orders.recv_many(&mut batch, BATCH_MAX).await > 0 {
                let orders = std::mem::take(&mut batch);
                let saving = save_all(&outbox, &appender, &orders);
                let saved = match tokio::time::timeout(SAVE_TIMEOUT, saving).await {
                    Ok(Ok(saved)) => saved,
                    Ok(Err(error)) => not_saved(&gateway, orders.len(), &error),
                    Err(_) => {
                        let error = format!("no answer within {SAVE_TIMEOUT:?}");
                        not_saved(&gateway, orders.len(), &error)
                    }
                };
                for (order, saved) in orders.into_iter().zip(saved) {
                    // The caller may be gone; that does not matter.
                    let _ = order.answer.send(saved);
                }
            }
        });
        saver
    }

    /// Saves a call. If the database's answer is lost, it counts as not saved; a repeated call
    /// finds it there.
    pub(super) async fn save(&self, request_id: String, event: NewEvent) -> Saved {
        // Validated here and not in the batch, where one invalid call would fail all of them.
        if let Err(error) = event.validate() {
            tracing::warn!(gateway = self.gateway, %error, "a call cannot be saved");
            return Saved::No;
        }
        let (answer, answered) = oneshot::channel();
        if self.queue.try_send(Order { request_id, event, answer }).is_err() {
            let gateway = &self.gateway;
            tracing::error!(gateway, "a call is not saved: {WAITING_MAX} others wait for that");
            return Saved::No;
        }
        match tokio::time::timeout(SAVE_TIMEOUT, answered).await {
            Ok(Ok(saved)) => saved,
            Ok(Err(_)) | Err(_) => Saved::No,
        }
    }
}

/// Saves a batch of calls. Most calls during an outage are repeats: these write nothing, and wait
/// for no writer.
async fn save_all(
    outbox: &Outbox,
    appender: &Appender,
    orders: &[Order],
) -> Result<Vec<Saved>, AppendError> {
    let ids: Vec<&str> = orders.iter().map(|order| order.request_id.as_str()).collect();
    let known = appender.known(outbox, &ids).await?;
    let is_new = |order: &&Order| !known.contains(&order.request_id);
    let events: Vec<NewEvent> =
        orders.iter().filter(is_new).map(|order| order.event.clone()).collect();
    let mut appended = match events.is_empty() {
        true => Vec::new(),
        false => appender.append_all(outbox, &events).await?,
    }
    .into_iter();
    let saved = |order: &Order| match is_new(&order).then(|| appended.next()).flatten() {
        Some(appended) if !appended.is_duplicate() => Saved::New,
        _ => Saved::Repeat,
    };
    Ok(orders.iter().map(saved).collect())
}

fn not_saved(gateway: &str, calls: usize, error: &dyn std::fmt::Display) -> Vec<Saved> {
    tracing::error!(gateway, calls, %error, "calls could not be saved");
    vec![Saved::No; calls]
}
