//! `postrider token`

use chrono::Utc;
use postrider_command::{Failure, output};

use crate::cli::TokenCommand;
use crate::http::access::new_token;

pub(crate) fn token(command: TokenCommand) -> Result<(), Failure> {
    let TokenCommand::New { name, role, expires, json } = command;
    let end = expires.map(|time| {
        let time = chrono::Duration::from_std(time).ok();
        let end = time.and_then(|time| Utc::now().checked_add_signed(time));
        end.ok_or_else(|| Failure::Usage("--expires: that is too far away".to_owned()))
    });
    let (token, holder) = new_token(&name, role, end.transpose()?)
        .map_err(|error| Failure::Usage(format!("--name: {error}")))?;
    let line = holder.line();
    if json {
        return output::print_json(&serde_json::json!({ "token": token, "line": line }));
    }
    output::print(&format!(
        "token (shown this once; give it to its holder):\n  {token}\n\n\
         line for the file of `tokens_file` in [api], or for `tokens`:\n  {line}\n"
    ))
}
