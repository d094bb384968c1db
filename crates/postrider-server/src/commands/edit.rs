//! `postrider dlq edit`

use std::io::Read;
use std::path::Path;

use postrider_command::{Failure, output};
use postrider_store::Edit;

use crate::cli::EditArgs;
use crate::commands::Opened;

pub(crate) async fn edit(opened: &Opened, args: EditArgs) -> Result<(), Failure> {
    let outbox = opened.outbox(args.outbox.as_deref())?;
    let set = args.headers.into_iter().map(|(name, value)| (name, Some(value)));
    let removed = args.without_headers.into_iter().map(|name| (name, None));
    let edit = Edit {
        aggregate_type: args.aggregate_type,
        aggregate_id: args.aggregate_id,
        event_type: args.event_type,
        payload: args.payload.as_deref().map(payload).transpose()?,
        headers: set.chain(removed).collect(),
    };
    let (id, by) = (args.id, &args.by);
    let resent = opened.store.resend(&outbox, id, &edit, &by.operator, &by.note).await?;
    match args.json {
        true => output::print_json(&resent),
        false => output::print(&format!(
            "dead letter {id} is resolved; its edited copy is event {} ({}): postrider events show \
             {} --outbox {}\n",
            resent.id,
            resent.event_id,
            resent.id,
            outbox.name()
        )),
    }
}

/// Reads the new body, without the line end that editors add.
fn payload(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::Usage(format!("--payload {}: {error}", path.display())))?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}
