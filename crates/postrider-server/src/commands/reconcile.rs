//! `postrider reconcile`

use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider_command::{
    Failure,
    output::{self, Table, number},
};
use postrider_store::{ConsumerLedger, Database, LedgerLine, LedgerWindow, StoreError};
use serde::Serialize;

use crate::cli::ReconcileArgs;
use crate::commands::buffer_ledger::{self, BufferReconciliation};
use crate::commands::{Context, buffer, inbox};

/// The ledger of one outbox.
#[derive(Debug, Serialize)]
pub(crate) struct Reconciliation {
    pub(crate) outbox: String,
    pub(crate) balanced: bool,
    pub(crate) appended: LedgerLine,
    pub(crate) delivered: LedgerLine,
    pub(crate) dead: LedgerLine,
    pub(crate) pending: LedgerLine,
    /// Windows of `created_at` that do not balance.
    pub(crate) unbalanced: Vec<LedgerWindow>,
}

impl Reconciliation {
    pub(crate) fn new(outbox: &str, ledger: Vec<LedgerWindow>) -> Self {
        let sum = |of: fn(&LedgerWindow) -> LedgerLine| {
            ledger.iter().fold(LedgerLine::default(), |sum, window| sum + of(window))
        };
        Self {
            outbox: outbox.to_owned(),
            appended: sum(|b| b.appended),
            delivered: sum(|b| b.delivered),
            dead: sum(|b| b.dead),
            pending: sum(|b| b.pending),
            balanced: ledger.iter().all(LedgerWindow::balanced),
            unbalanced: ledger.into_iter().filter(|window| !window.balanced()).collect(),
        }
    }

    /// Returns whether some window has the same difference as in an earlier round.
    fn is_as_wrong(&self, then: &Self) -> bool {
        let missing = |ledger: &LedgerWindow| {
            let rest = ledger.delivered + ledger.dead + ledger.pending;
            (
                ledger.window,
                ledger.appended.count - rest.count,
                ledger.appended.id_sum - rest.id_sum,
            )
        };
        let same =
            |now: &LedgerWindow| then.unbalanced.iter().any(|old| missing(old) == missing(now));
        self.outbox == then.outbox && self.unbalanced.iter().any(same)
    }
}

/// An entry of the JSON output: outboxes, then consumers, then buffers.
#[derive(Serialize)]
#[serde(untagged)]
enum Ledger<'a> {
    Outbox(&'a Reconciliation),
    Consumer {
        #[serde(flatten)]
        ledger: &'a ConsumerLedger,
        balanced: bool,
    },
    Buffer(&'a BufferReconciliation),
}

pub(crate) async fn reconcile(context: &Context, args: &ReconcileArgs) -> Result<(), Failure> {
    if args.consumers {
        let consumers = inbox::open(context).await?.consumer_ledgers().await?;
        return conclude(&[], &consumers, &[], args.read.json);
    }
    let opened = context.open().await?;
    let outboxes = opened.outboxes(args.read.outbox.as_deref())?;
    if args.watch {
        return watch(opened.store.as_ref(), &outboxes, args).await;
    }
    let found = look(opened.store.as_ref(), &outboxes).await?;
    // If one outbox is requested, only that one is reconciled.
    let (consumers, buffers) = match args.read.outbox {
        Some(_) => Default::default(),
        None => (opened.store.consumer_ledgers().await?, buffer::ledgers(&opened).await?),
    };
    conclude(&found, &consumers, &buffers, args.read.json)
}

fn conclude(
    outboxes: &[Reconciliation],
    consumers: &[ConsumerLedger],
    buffers: &[BufferReconciliation],
    json: bool,
) -> Result<(), Failure> {
    if json {
        let consumer =
            |ledger| Ledger::Consumer { ledger, balanced: ConsumerLedger::balanced(ledger) };
        let ledger = outboxes.iter().map(Ledger::Outbox).chain(consumers.iter().map(consumer));
        let ledger = ledger.chain(buffers.iter().map(Ledger::Buffer));
        output::print_json(&ledger.collect::<Vec<_>>())?;
    } else {
        if !outboxes.is_empty() {
            print(outboxes)?;
        }
        print_consumers(consumers, outboxes.is_empty() && buffers.is_empty())?;
        buffer_ledger::print(buffers)?;
    }
    let outbox = outboxes.iter().filter(|r| !r.balanced).map(|r| format!("outbox {}", r.outbox));
    let consumer =
        consumers.iter().filter(|b| !b.balanced()).map(|b| format!("consumer {}", b.consumer));
    let buffer = buffers.iter().filter(|r| !r.balanced).map(|r| format!("buffer {}", r.buffer));
    let wrong: Vec<String> = outbox.chain(consumer).chain(buffer).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Unbalanced(wrong.join(", "))),
    }
}

fn print_consumers(consumers: &[ConsumerLedger], alone: bool) -> Result<(), Failure> {
    if consumers.is_empty() {
        return output::print(if alone { "no consumer has received anything\n" } else { "" });
    }
    let mut table =
        Table::new(&["CONSUMER", "RECEIVED", "APPLIED", "IGNORED", "DEAD", "UNRESOLVED", "LEDGER"]);
    for ledger in consumers {
        let mut cells = vec![ledger.consumer.clone()];
        let counts =
            [ledger.received, ledger.applied, ledger.ignored, ledger.dead, ledger.unresolved];
        cells.extend(counts.map(number));
        let difference = ledger.received - ledger.applied - ledger.ignored - ledger.dead;
        cells.push(match difference {
            0 => "balanced".to_owned(),
            _ => format!("DIFFER by {difference} messages"),
        });
        table.row(cells);
    }
    output::print(if alone { "" } else { "\n" })?;
    table.print()
}

async fn look(
    store: &dyn Database,
    outboxes: &[Outbox],
) -> Result<Vec<Reconciliation>, StoreError> {
    let mut found = Vec::new();
    for outbox in outboxes {
        let ledger = store.ledger(outbox).await?;
        found.push(Reconciliation::new(outbox.name(), ledger));
    }
    Ok(found)
}

fn verdict(wrong: &[&Reconciliation]) -> Result<(), Failure> {
    let names: Vec<&str> = wrong.iter().map(|r| r.outbox.as_str()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Failure::Unbalanced(format!("outbox {}", names.join(", ")))),
    }
}

/// Reconciles round after round, until a window has the same difference as in the round before.
async fn watch(
    store: &dyn Database,
    outboxes: &[Outbox],
    args: &ReconcileArgs,
) -> Result<(), Failure> {
    let mut before: Vec<Reconciliation> = Vec::new();
    loop {
        match look(store, outboxes).await {
            Ok(found) => {
                print_round(&found, args.read.json)?;
                let stays = |now: &&Reconciliation| before.iter().any(|then| now.is_as_wrong(then));
                let wrong: Vec<_> = found.iter().filter(stays).collect();
                if !wrong.is_empty() {
                    if !args.read.json {
                        print(&found)?;
                    }
                    return verdict(&wrong);
                }
                before = found;
            }
            // An unreachable database says nothing about its ledger.
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "this round saw nothing; trying again");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(args.every).await;
    }
}

/// Prints one line, or one JSON object on a line.
fn print_round(found: &[Reconciliation], json: bool) -> Result<(), Failure> {
    let at = Utc::now();
    if json {
        let round = serde_json::json!({ "at": at, "outboxes": found });
        return output::print(&format!("{round}\n"));
    }
    let of_outbox = |r: &Reconciliation| {
        let ledger = if r.balanced { "balanced" } else { "DIFFER" };
        format!(
            "{} {ledger} ({} appended, {} delivered, {} dead, {} pending)",
            r.outbox,
            number(r.appended.count),
            number(r.delivered.count),
            number(r.dead.count),
            number(r.pending.count)
        )
    };
    let outboxes = found.iter().map(of_outbox).collect::<Vec<_>>().join("; ");
    output::print(&format!("{}  {outboxes}\n", at.format("%Y-%m-%d %H:%M:%S")))
}

pub(crate) fn print(found: &[Reconciliation]) -> Result<(), Failure> {
    let mut table =
        Table::new(&["OUTBOX", "WINDOW", "APPENDED", "DELIVERED", "DEAD", "PENDING", "LEDGER"]);
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

fn line(outbox: &str, window: &str, lines: [LedgerLine; 4], balanced: bool) -> Vec<String> {
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
