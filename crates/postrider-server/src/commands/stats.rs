//! `postrider stats`

use postrider::store::Statistics;
use serde::Serialize;

use crate::cli::ReadArgs;
use crate::commands::{Context, Failure};
use crate::output::{self, Table, age, number};

#[derive(Serialize)]
struct Line {
    outbox: String,
    #[serde(flatten)]
    statistics: Statistics,
}

pub(crate) async fn stats(context: &Context, args: &ReadArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let mut lines = Vec::new();
    for outbox in opened.outboxes(args.outbox.as_deref())? {
        let statistics = opened.store.statistics(&outbox).await?;
        lines.push(Line { outbox: outbox.name().to_owned(), statistics });
    }
    if args.json {
        return output::print_json(&lines);
    }
    let mut table = Table::new(&[
        "OUTBOX",
        "TYPE",
        "APPENDED",
        "DELIVERED",
        "DEAD",
        "PENDING",
        "OLDEST",
        "UNRESOLVED",
    ]);
    for Line { outbox, statistics: s } in &lines {
        table.row(vec![
            outbox.clone(),
            "all".to_owned(),
            number(s.appended),
            number(s.delivered),
            number(s.dead),
            number(s.pending),
            s.oldest_age_s.map_or_else(|| "-".to_owned(), age),
            number(s.unresolved),
        ]);
        for t in &s.by_type {
            table.row(vec![
                String::new(),
                t.event_type.clone(),
                number(t.appended),
                number(t.delivered),
                number(t.dead),
                number(t.appended - t.delivered - t.dead),
            ]);
        }
    }
    table.print()
}
