//! `postrider alert`

use std::time::Duration;

use postrider_command::{
    Failure,
    output::{self, Table},
};
use postrider_relay::alerts::{LogChannel, Message, Subscription};
use serde::Serialize;

use crate::cli::AlertCommand;
use crate::commands::Context;

/// Time limit for one channel to accept a test message.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of a test message on one channel.
#[derive(Debug, Serialize)]
struct Tried {
    channel: String,
    target: String,
    sent: bool,
    answer: String,
}

pub(crate) async fn alert(context: &Context, command: &AlertCommand) -> Result<(), Failure> {
    let AlertCommand::Test { channel, json } = command;
    let built = context.load()?.build()?;
    let mut channels = vec![Subscription::new(LogChannel)];
    channels.extend(built.channels);
    let names: Vec<String> = channels.iter().map(|c| c.channel.name().to_owned()).collect();
    if let Some(wanted) = channel {
        channels.retain(|subscription| subscription.channel.name() == wanted);
    }
    if channels.is_empty() {
        let wanted = channel.as_deref().unwrap_or_default();
        return Err(Failure::Usage(format!(
            "no [[alert]] is named `{wanted}`; there is: {}",
            names.join(", ")
        )));
    }
    let mut tried = Vec::new();
    for subscription in &channels {
        tried.push(test(subscription, &built.relay.host).await);
    }
    match json {
        true => output::print_json(&tried)?,
        false => print(&tried)?,
    }
    let failed = tried.iter().filter(|tried| !tried.sent).count();
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Partly(format!("{failed} of {} did not take it", tried.len()))),
    }
}

async fn test(subscription: &Subscription, host: &str) -> Tried {
    let channel = &subscription.channel;
    let answer = tokio::time::timeout(TEST_TIMEOUT, channel.send(&Message::test(host))).await;
    let (sent, answer) = match answer {
        Ok(Ok(answer)) => (true, answer),
        Ok(Err(failed)) => (false, failed.error),
        Err(_) => (false, format!("no answer within {TEST_TIMEOUT:?}")),
    };
    Tried { channel: channel.name().to_owned(), target: channel.target().to_owned(), sent, answer }
}

fn print(tried: &[Tried]) -> Result<(), Failure> {
    let mut table = Table::new(&["CHANNEL", "TO", "SENT", "ANSWER"]);
    for Tried { channel, target, sent, answer } in tried {
        let sent = if *sent { "yes" } else { "NO" };
        table.row(vec![channel.clone(), target.clone(), sent.to_owned(), answer.clone()]);
    }
    table.print()
}
