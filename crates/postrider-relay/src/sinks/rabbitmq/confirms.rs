//! Matches the broker's answers to the messages of one wave.
//!
//! lapin attaches a returned message to whichever confirm of the channel completes next, not to its
//! own. The returned messages are therefore collected from all confirms and identified by their
//! content. RabbitMQ returns a message before it confirms it, and each confirm takes one returned
//! message if there is any. It follows that
//!
//! - when every message of the wave is confirmed, no returned message is missing;
//! - a confirm without a returned message found none waiting: if its own message was returned, an
//!   earlier confirm has it.
//!
//! A confirm that has the returned message of another says nothing about its own while others are
//! missing.

use std::collections::HashSet;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation, PublisherConfirm};
use tokio::time::{Instant, timeout_at};

use super::Letter;

/// The result of a message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Its queues have it.
    Stored,
    /// No queue takes it.
    Returned,
    /// A queue refused it.
    Refused,
    /// It was sent, and the answer is missing or may belong to another message. It may have
    /// arrived.
    Doubt(Option<lapin::Error>),
}

/// The broker's answer to one message of the wave, so far.
enum Confirm {
    Awaited(PublisherConfirm),
    Ack { took_message: bool },
    Nack,
    Failed(lapin::Error),
}

/// Identifies a message: message id, exchange and routing key.
type Identity<'a> = (Option<&'a ShortString>, &'a ShortString, &'a ShortString);

/// Publishes messages on a channel that has nothing else in flight. Returns one verdict for each;
/// after any doubt the channel must not be reused.
pub(super) async fn publish(
    channel: &Channel,
    letters: &[&Letter<'_>],
    deadline: Instant,
) -> Vec<Verdict> {
    // Mandatory: a message that no queue takes is returned instead of dropped.
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let publishing = join_all(letters.iter().map(|letter| {
        let (exchange, key) = (letter.exchange.clone(), letter.routing_key.clone());
        let (body, properties) = (letter.body.as_bytes(), letter.properties.clone());
        channel.basic_publish(exchange, key, options, body, properties)
    }));
    let Ok(published) = timeout_at(deadline, publishing).await else {
        return letters.iter().map(|_| Verdict::Doubt(None)).collect();
    };
    let mut confirms: Vec<Confirm> = published
        .into_iter()
        .map(|published| published.map_or_else(Confirm::Failed, Confirm::Awaited))
        .collect();
    let returned = read(&mut confirms, deadline).await;
    verdicts(letters, confirms, &returned)
}

/// Waits for the confirms, one after the other: when the first has arrived, most others have too.
/// Returns the messages that were returned.
async fn read(confirms: &mut [Confirm], deadline: Instant) -> Vec<BasicReturnMessage> {
    let mut returned = Vec::new();
    for place in &mut *confirms {
        let Confirm::Awaited(confirm) = place else { continue };
        // After the deadline this still takes what has arrived.
        let Ok(answer) = timeout_at(deadline, confirm).await else { continue };
        *place = match answer {
            Ok(Confirmation::Ack(message)) => {
                let took_message = message.is_some();
                returned.extend(message);
                Confirm::Ack { took_message }
            }
            Ok(Confirmation::Nack(message)) => {
                returned.extend(message);
                Confirm::Nack
            }
            // The channel is in confirm mode; without a confirm nothing is known.
            Ok(Confirmation::NotRequested) => continue,
            Err(error) => Confirm::Failed(error),
        };
    }
    // A confirm that was missing at its turn may have arrived before one that was read later, and
    // may have taken the returned message of that one.
    for place in confirms {
        let Confirm::Awaited(confirm) = place else { continue };
        if let Some(Ok(late)) = confirm.now_or_never() {
            returned.extend(late.take_message());
        }
    }
    returned
}

fn verdicts(
    letters: &[&Letter<'_>],
    confirms: Vec<Confirm>,
    returned: &[BasicReturnMessage],
) -> Vec<Verdict> {
    let known: HashSet<Identity<'_>> = letters.iter().map(|letter| letter.identity()).collect();
    let mut back: HashSet<Identity<'_>> = returned.iter().map(identity).collect();
    let answered = |confirm: &Confirm| matches!(confirm, Confirm::Ack { .. } | Confirm::Nack);
    let complete = confirms.iter().all(answered);
    if let ([letter], [_, ..]) = (letters, returned) {
        back.insert(letter.identity());
    }
    // A returned message does not match any that was sent: it may belong to any of them.
    let foreign = letters.len() > 1 && !back.is_subset(&known);
    let verdict = |(letter, confirm): (&&Letter<'_>, Confirm)| match confirm {
        _ if back.contains(&letter.identity()) => Verdict::Returned,
        Confirm::Ack { .. } if foreign => Verdict::Doubt(None),
        Confirm::Ack { took_message } if complete || !took_message => Verdict::Stored,
        Confirm::Ack { .. } | Confirm::Awaited(_) => Verdict::Doubt(None),
        Confirm::Nack => Verdict::Refused,
        Confirm::Failed(error) => Verdict::Doubt(Some(error)),
    };
    letters.iter().zip(confirms).map(verdict).collect()
}

impl Letter<'_> {
    fn identity(&self) -> Identity<'_> {
        (self.properties.message_id().as_ref(), &self.exchange, &self.routing_key)
    }
}

fn identity(message: &BasicReturnMessage) -> Identity<'_> {
    (message.properties.message_id().as_ref(), &message.exchange, &message.routing_key)
}
