//! The queue of one channel: in order, one message at a time, each tried until it is through.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Message, NotSent, Subscription};
use crate::preset::Backoff;
use crate::telemetry;

/// Messages that wait for one channel. More are dropped and counted: an alert never stops the relay.
/// Those that carry an event have a lane of their own, as long.
const WAITING_MAX: usize = 1_000;
/// Time for one try.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// A message is tried for this long; who was not reached for a day has other ways to know.
const TRIED_FOR_MAX: Duration = Duration::from_secs(24 * 3600);
/// Tries of a message that the other side refuses: more would keep up those behind it.
const REFUSALS_MAX: u32 = 3;

/// The entry to a channel's queue.
pub(super) struct Queue {
    subscription: std::sync::Arc<Subscription>,
    sender: mpsc::Sender<Message>,
    last_copies: mpsc::Sender<Message>,
}

/// The other end.
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
    /// Puts a message in line, if it is for this channel. Never waits.
    pub(super) fn put(&self, message: &Message) {
        // Also on a channel that may not carry the event: it names the row that has no copy.
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
    /// Sends until no more can come. After `stop`, each message is tried once more and no longer.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(message) = self.next().await {
            self.send(&message, &stop).await;
            let channel = self.subscription.channel.name().to_owned();
            metrics::gauge!(telemetry::ALERTS_WAITING, telemetry::label::CHANNEL => channel)
                .decrement(1.0);
        }
    }

    /// The next message: first those that may be the only copy of an event.
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
