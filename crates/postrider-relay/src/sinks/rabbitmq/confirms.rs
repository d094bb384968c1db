//! What the broker says of the messages of one wave.
//!
//! lapin gives a message that came back to whichever confirm of the channel completes next, not to
//! its own. So the messages that came back are collected from all confirms and told apart by what
//! they carry. RabbitMQ returns a message before it confirms it, and each confirm takes one returned
//! message if there is any; it follows that
//!
//! - when every message of the wave is confirmed, nothing that came back is missing;
//! - a confirm that took no message found none waiting: if its own message had come back, an
//!   earlier confirm has it.
//!
//! A confirm that took another's message says nothing of its own while others are missing.

use std::collections::HashSet;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation, PublisherConfirm};
use tokio::time::{Instant, timeout_at};

use super::Letter;

/// What became of a message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Its queues have it.
    Stored,
    /// No queue takes it.
    Returned,
    /// A queue refused it.
    Refused,
    /// It was sent, and the answer is missing or may be another's. It may have arrived.
    Doubt(Option<lapin::Error>),
}

/// One message of the wave, as far as the broker answered.
enum Confirm {
    Awaited(PublisherConfirm),
    Ack { took_message: bool },
    Nack,
    Failed(lapin::Error),
}

/// What tells one message from another.
type Identity<'a> = (Option<&'a ShortString>, &'a ShortString, &'a ShortString);

/// Publishes letters on a channel that has nothing else under way. One verdict for each; after any
/// doubt the channel is of no use.
pub(super) async fn publish(
    channel: &Channel,
    letters: &[&Letter<'_>],
    deadline: Instant,
) -> Vec<Verdict> {
    // Mandatory: what no queue takes comes back instead of vanishing.
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

/// Waits for the confirms, one after the other: when the first is there, most others are too.
/// Answers the messages that came back.
async fn read(confirms: &mut [Confirm], deadline: Instant) -> Vec<BasicReturnMessage> {
    let mut returned = Vec::new();
    for place in &mut *confirms {
        let Confirm::Awaited(confirm) = place else { continue };
        // Past the deadline this takes what is there.
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
            // The channel confirms; without its word there is nothing to rely on.
            Ok(Confirmation::NotRequested) => continue,
            Err(error) => Confirm::Failed(error),
        };
    }
    // One that was missing when it was looked at may have come before one that was read after it,
    // and may have taken that one's message.
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
    // A message came back that is not like any that was sent: it may be anyone's.
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
