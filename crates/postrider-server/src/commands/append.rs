//! `postrider append`

use std::io::Read;

use postrider::{Appended, NewEvent};
use postrider_command::{Failure, output, without_password};
use postrider_store::Appender;

use crate::cli::AppendArgs;
use crate::commands::Context;

pub(crate) async fn append(context: &Context, args: AppendArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let outbox = opened.outbox(args.outbox.as_deref())?;
    let payload = match args.payload.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::Usage(format!("standard input: {error}")))?;
            text
        }
        _ => args.payload,
    };
    let mut event = NewEvent::new(args.aggregate_type, args.aggregate_id, args.event_type, payload);
    if let Some(request_id) = args.request_id {
        event = event.request_id(request_id);
    }
    if let Some(wait) = args.deliver_after {
        event = event.deliver_after(wait);
    }
    for (name, value) in args.headers {
        event = event.header(name, value);
    }
    let appender = Appender::connect(&opened.url, 1)
        .await
        .map_err(|error| Failure::Connect { url: without_password(&opened.url), error })?;
    let appended = appender.append_all(&outbox, &[event]).await?;
    for answer in appended {
        match (&answer, args.json) {
            (Appended::New { id, event_id }, true) => output::print_json(
                &serde_json::json!({ "id": id, "event_id": event_id, "duplicate": false }),
            )?,
            (Appended::Duplicate { id }, true) => {
                output::print_json(&serde_json::json!({ "id": id, "duplicate": true }))?;
            }
            (Appended::New { id, event_id }, false) => {
                output::print(&format!("appended event {id} ({event_id})\n"))?;
            }
            (Appended::Duplicate { id }, false) => {
                output::print(&format!("duplicate: this request id was appended as event {id}\n"))?;
            }
        }
    }
    Ok(())
}
