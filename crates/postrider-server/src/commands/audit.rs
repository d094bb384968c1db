//! `postrider audit`

use std::time::Duration;

use postrider_command::{
    Failure,
    output::{self, Table, brief},
};
use postrider_store::{AuditFilter, Page};

use crate::cli::AuditArgs;
use crate::commands::Context;

pub(crate) async fn audit(context: &Context, args: AuditArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let filter = AuditFilter {
        operator: args.operator,
        action: args.action,
        outbox: args.outbox,
        target: args.target,
        since: args.since,
        until: args.until,
    };
    let page = Page::first(args.page.limit).below(args.page.before).within(Duration::MAX);
    let listed = opened.store.audit(&filter, page).await?;
    if args.page.json {
        return output::print_json(&listed.rows);
    }
    let mut table = Table::new(&["ID", "AT", "OPERATOR", "ACTION", "OUTBOX", "TARGET", "DETAIL"]);
    for entry in &listed.rows {
        table.row(vec![
            entry.id.to_string(),
            entry.at.format("%Y-%m-%d %H:%M:%S").to_string(),
            brief(&entry.operator, 24),
            entry.action.clone(),
            entry.outbox.clone(),
            brief(&entry.target, 40),
            brief(&entry.detail, 80),
        ]);
    }
    if table.is_empty() {
        return output::print("nothing was done\n");
    }
    table.print()?;
    match listed.next {
        Some(next) => output::print(&format!("more: --before {next}\n")),
        None => Ok(()),
    }
}
