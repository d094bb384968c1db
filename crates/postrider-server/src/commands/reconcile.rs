//! `postrider reconcile`

use chrono::{DateTime, Utc};
use postrider::store::{BookLine, Books};
use serde::Serialize;

use crate::cli::ReadArgs;
use crate::commands::{Context, Failure};
use crate::output::{self, Table, number};

/// The books of one outbox.
#[derive(Debug, Serialize)]
pub(crate) struct Reconciliation {
    pub(crate) outbox: String,
    pub(crate) balanced: bool,
    pub(crate) appended: BookLine,
    pub(crate) delivered: BookLine,
    pub(crate) dead: BookLine,
    pub(crate) pending: BookLine,
    /// Windows of `created_at` that do not balance.
    pub(crate) unbalanced: Vec<Books>,
}

impl Reconciliation {
    pub(crate) fn new(outbox: &str, books: Vec<Books>) -> Self {
        let sum = |of: fn(&Books) -> BookLine| {
            books.iter().fold(BookLine::default(), |sum, window| sum + of(window))
        };
        Self {
            outbox: outbox.to_owned(),
            appended: sum(|b| b.appended),
            delivered: sum(|b| b.delivered),
            dead: sum(|b| b.dead),
            pending: sum(|b| b.pending),
            balanced: books.iter().all(Books::balanced),
            unbalanced: books.into_iter().filter(|window| !window.balanced()).collect(),
        }
    }
}

pub(crate) async fn reconcile(context: &Context, args: &ReadArgs) -> Result<(), Failure> {
    let opened = context.open().await?;
    let mut found = Vec::new();
    for outbox in opened.outboxes(args.outbox.as_deref())? {
        let books = opened.store.books(&outbox).await?;
        found.push(Reconciliation::new(outbox.name(), books));
    }
    match args.json {
        true => output::print_json(&found)?,
        false => print(&found)?,
    }
    let wrong: Vec<&str> =
        found.iter().filter(|r| !r.balanced).map(|r| r.outbox.as_str()).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Unbalanced(format!("outbox {}", wrong.join(", ")))),
    }
}

pub(crate) fn print(found: &[Reconciliation]) -> Result<(), Failure> {
    let mut table =
        Table::new(&["OUTBOX", "WINDOW", "APPENDED", "DELIVERED", "DEAD", "PENDING", "BOOKS"]);
    for r in found {
        let lines = [r.appended, r.delivered, r.dead, r.pending];
        table.row(line(&r.outbox, "all", lines, r.balanced));
        for window in &r.unbalanced {
            let lines = [window.appended, window.delivered, window.dead, window.pending];
            table.row(line("", &minute(window.window), lines, false));
        }
    }
    table.print()
}

fn line(outbox: &str, window: &str, lines: [BookLine; 4], balanced: bool) -> Vec<String> {
    let [appended, delivered, dead, pending] = lines;
    let rest = delivered + dead + pending;
    let verdict = match balanced {
        true => "balanced".to_owned(),
        false => format!(
            "DIFFER by {} events, {} in the sum of ids",
            appended.count - rest.count,
            appended.id_sum - rest.id_sum
        ),
    };
    let mut cells = vec![outbox.to_owned(), window.to_owned()];
    cells.extend([appended, delivered, dead, pending].map(|line| number(line.count)));
    cells.push(verdict);
    cells
}

fn minute(window: DateTime<Utc>) -> String {
    window.format("%Y-%m-%d %H:%M").to_string()
}
