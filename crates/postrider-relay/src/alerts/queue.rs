//! The queue of one channel: sends messages in order, one at a time, and retries each until it is
//! sent.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Message, NotSent, Subscription};
use crate::preset::Backoff;
use crate::telemetry;

/// Messages that wait for one channel. Further ones are dropped and counted: an alert never stops
/// the relay. Messages that carry an event have a queue of their own, of the same length.
const WAITING_MAX: usize = 1_000;
/// Timeout of one attempt.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a message is retried. Operators who were not reached for a day have other ways to learn
/// of it.
const TRIED_FOR_MAX: Duration = Duration::from_secs(24 * 3600);
/// Attempts for a message that the receiver refuses: more would delay the messages behind it.
const REFUSALS_MAX: u32 = 3;

/// The sending end of a channel's queue.
pub(super) struct Queue {
    subscription: std::sync::Arc<Subscription>,
    sender: mpsc::Sender<Message>,
    last_copies: mpsc::Sender<Message>,
}

/// The receiving end.
pub(super) struct Sending {
    subscription: std::sync::Arc<Subscription>,
    receiver: mpsc::Receiver<Message>,
    last_copies: mpsc::Receiver<Message>,
    retry: Backoff,
}

pub(super) fn queue(subscription: Subscription, retry: Backoff) -> (Queue, Sending) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (copies_sender, last_copies) = mpsc::channel(WAITING_MAX);
    let subscription = std::sync::Arc::new(subscription);
    let channel = subscription.channel.name().to_owned();
    telemetry::start_channel(&channel);
    (
        Queue {
            subscription: std::sync::Arc::clone(&subscription),
            sender,
            last_copies: copies_sender,
        },
        Sending { subscription, receiver, last_copies, retry },
    )
}

impl Queue {
    /// Queues a message, if it is meant for this channel. Never waits.
    pub(super) fn put(&self, message: &Message) {
        // Decided before the payload is removed: a channel that may not carry the event still names
        // the row that has no copy.
        let lane = if message.event.is_some() { &self.last_copies } else { &self.sender };
        let Some(message) = self.subscription.share(message) else { return };
        let channel = self.subscription.channel.name().to_owned();
        match lane.try_send(message) {
            Ok(()) => {
                metrics::gauge!(telemetry::ALERTS_WAITING, telemetry::label::CHANNEL => channel)
                    .increment(1.0);
            }
            Err(error) => {
                metrics::counter!(telemetry::ALERTS_DROPPED,
                    telemetry::label::CHANNEL => channel.clone())
                .increment(1);
                tracing::error!(channel, %error, "alert dropped: too many wait for this channel");
            }
        }
    }
}

impl Sending {
    /// Sends until the queue is closed. After `stop`, each message is tried only once more.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(message) = self.next().await {
            self.send(&message, &stop).await;
            let channel = self.subscription.channel.name().to_owned();
            metrics::gauge!(telemetry::ALERTS_WAITING, telemetry::label::CHANNEL => channel)
                .decrement(1.0);
        }
    }

    /// Returns the next message; those that may be the only copy of an event come first.
    async fn next(&mut self) -> Option<Message> {
        tokio::select! {
            biased;
            Some(message) = self.last_copies.recv() => Some(message),
            message = self.receiver.recv() => message,
        }
    }

    async fn send(&self, message: &Message, stop: &CancellationToken) {
        let channel = self.subscription.channel.name();
        let count = |metric| {
            metrics::counter!(metric, telemetry::label::CHANNEL => channel.to_owned()).increment(1);
        };
        let (started, mut tries) = (Instant::now(), 0);
        loop {
            let last = stop.is_cancelled();
            let sending = self.subscription.channel.send(message);
            let failed = match tokio::time::timeout(SEND_TIMEOUT, sending).await {
                Ok(Ok(_)) => return count(telemetry::ALERTS),
                Ok(Err(failed)) => failed,
                Err(_) => NotSent::for_now(format!("no answer within {SEND_TIMEOUT:?}")),
            };
            tries += 1;
            count(telemetry::ALERTS_FAILED);
            let NotSent { error, refused } = failed;
            let given_up =
                last || (refused && tries >= REFUSALS_MAX) || started.elapsed() >= TRIED_FOR_MAX;
            let title = message.title.as_str();
            if given_up {
                count(telemetry::ALERTS_DROPPED);
                tracing::error!(channel, error, title, tries, "alert not sent; given up");
                return;
            }
            let wait = self.retry.wait(tries, rand::random());
            tracing::warn!(channel, error, title, tries, ?wait, "alert not sent; trying again");
            stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
    }
}
