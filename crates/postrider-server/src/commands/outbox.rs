//! `postrider outbox`

use postrider_command::{Failure, output};
use postrider_store::{Key, PauseKind};
use serde_json::json;

use crate::cli::OutboxCommand;
use crate::commands::{Context, adopt, pauses};

pub(crate) async fn outbox(context: &Context, command: &OutboxCommand) -> Result<(), Failure> {
    let opened = context.open().await?;
    match command {
        OutboxCommand::Pause { outbox, by } => {
            let outbox = opened.outbox(Some(outbox))?;
            pauses::pause(&opened, PauseKind::Outbox, outbox.name(), by).await
        }
        OutboxCommand::Resume { outbox, by } => {
            let outbox = opened.outbox(Some(outbox))?;
            pauses::resume(&opened, PauseKind::Outbox, outbox.name(), by).await
        }
        OutboxCommand::SetClaim { outbox, claim, operator, json } => {
            let outbox = opened.outbox(Some(outbox))?;
            let mode = opened.store.set_mode(&outbox, *claim, operator).await?;
            if *json {
                return output::print_json(&json!({
                    "outbox": outbox.name(), "claim": mode.claim, "mode_epoch": mode.epoch,
                }));
            }
            output::print(&format!(
                "outbox {}: claim mode `{}`, epoch {}. Relays follow when all of them have \
                 finished what they hold; one that is configured for another mode stops serving \
                 it.\n",
                outbox.name(),
                mode.claim,
                mode.epoch
            ))
        }
        OutboxCommand::Adopt(args) => adopt::adopt(&opened, args).await,
        OutboxCommand::ReleaseKey { outbox, aggregate_type, aggregate_id, operator, json } => {
            let outbox = opened.outbox(outbox.as_deref())?;
            let key =
                Key { aggregate_type: aggregate_type.clone(), aggregate_id: aggregate_id.clone() };
            opened.store.release_key(&outbox, &key, operator).await?;
            if *json {
                return output::print_json(&json!({ "outbox": outbox.name(), "released": key }));
            }
            output::print(&format!(
                "outbox {}: key {aggregate_type} / {aggregate_id} goes on\n",
                outbox.name()
            ))
        }
    }
}
