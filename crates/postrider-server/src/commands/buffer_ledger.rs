//! The ledger of a buffer: compares the counts that Redis made when it moved entries with the
//! outcomes of those entries in Redis and in the database.

use std::time::Duration;

use postrider::buffer::{Buffer, BufferLook};
use postrider_command::{
    Failure,
    output::{Table, number},
};
use postrider_store::{BatchLedger, BatchState, Database};
use serde::Serialize;

/// Number of attempts to read both ledgers without a move or an end of a batch in between.
const LOOKS_MAX: usize = 20;
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The ledger of one buffer, in entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BufferReconciliation {
    pub(crate) buffer: String,
    pub(crate) balanced: bool,
    moved: u64,
    applied: u64,
    ignored: u64,
    given_back: u64,
    dead: u64,
    waiting: u64,
    /// The totals in the database.
    recorded: BatchLedger,
    /// Descriptions of the differences.
    pub(crate) differences: Vec<String>,
}

/// The database's decisions on waiting batches, in entries.
#[derive(Debug, Clone, Copy, Default)]
struct Decided {
    applied: i64,
    cancelled: i64,
}

impl BufferReconciliation {
    pub(crate) async fn look(store: &dyn Database, buffer: &Buffer) -> Result<Self, Failure> {
        let mut before = buffer.look().await?;
        for _ in 0..LOOKS_MAX {
            let recorded = store.batch_ledger(buffer.name()).await?;
            let decided = decided(store, &before).await?;
            let after = buffer.look().await?;
            if (&before.ledger, &before.batches) == (&after.ledger, &after.batches) {
                return Ok(Self::judge(buffer.name(), &after, recorded, Some(decided)));
            }
            before = after;
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        // The buffer kept changing: Redis's own figures are still one consistent snapshot.
        let recorded = store.batch_ledger(buffer.name()).await?;
        Ok(Self::judge(buffer.name(), &before, recorded, None))
    }

    fn judge(
        name: &str,
        look: &BufferLook,
        recorded: BatchLedger,
        decided: Option<Decided>,
    ) -> Self {
        let (ledger, waiting) = (look.ledger, look.waiting());
        let signed = |count: u64| i128::from(count);
        let mut differences = Vec::new();
        let mut compare = |what: &str, left: i128, right: i128| {
            if left != right {
                differences.push(format!("{what}: {} against {}", number(left), number(right)));
            }
        };
        let ended = ledger.applied + ledger.ignored + ledger.given_back + ledger.dead + waiting;
        compare("moved, and what became of it in Redis", signed(ledger.moved), signed(ended));
        if let Some(decided) = decided {
            let applied = signed(ledger.applied + ledger.ignored) + i128::from(decided.applied);
            let cancelled = signed(ledger.given_back + ledger.dead) + i128::from(decided.cancelled);
            compare("applied in the database, and in Redis", recorded.applied.into(), applied);
            compare(
                "cancelled in the database, and in Redis",
                recorded.cancelled.into(),
                cancelled,
            );
        }
        Self {
            buffer: name.to_owned(),
            balanced: differences.is_empty(),
            moved: ledger.moved,
            applied: ledger.applied,
            ignored: ledger.ignored,
            given_back: ledger.given_back,
            dead: ledger.dead,
            waiting,
            recorded,
            differences,
        }
    }
}

async fn decided(store: &dyn Database, look: &BufferLook) -> Result<Decided, Failure> {
    let ids: Vec<_> = look.batches.iter().map(|batch| batch.id).collect();
    let mut decided = Decided::default();
    for (id, state) in store.batch_states(&ids).await? {
        let batch = look.batches.iter().find(|batch| batch.id == id);
        let entries = batch.map_or(0, |batch| i64::try_from(batch.entries).unwrap_or(i64::MAX));
        match state {
            BatchState::Applied => decided.applied += entries,
            BatchState::Cancelled | BatchState::Dead | BatchState::Imported => {
                decided.cancelled += entries;
            }
        }
    }
    Ok(decided)
}

pub(crate) fn print(found: &[BufferReconciliation]) -> Result<(), Failure> {
    if found.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        "BUFFER",
        "MOVED",
        "APPLIED",
        "IGNORED",
        "GIVEN BACK",
        "DEAD",
        "WAITING",
        "LEDGER",
    ]);
    for r in found {
        let counts = [r.moved, r.applied, r.ignored, r.given_back, r.dead, r.waiting];
        let mut cells = vec![r.buffer.clone()];
        cells.extend(counts.map(|count| number(i128::from(count))));
        cells.push(match r.balanced {
            true => "balanced".to_owned(),
            false => format!("DIFFER: {}", r.differences.join("; ")),
        });
        table.row(cells);
    }
    table.print()
}

#[cfg(test)]
mod tests {
    use postrider::buffer::MovedLedger;

    use super::*;

    #[test]
    fn an_entry_that_is_missing_on_either_side_shows() {
        let ledger = MovedLedger { moved: 10, applied: 6, ignored: 1, given_back: 2, dead: 1 };
        let look = BufferLook { fields: 3, batches: Vec::new(), ledger };
        let recorded = BatchLedger { applied: 7, cancelled: 3, dead: 1, imported: 0 };
        let judge = |look: &BufferLook, recorded| {
            BufferReconciliation::judge("likes", look, recorded, Some(Decided::default()))
        };
        assert!(judge(&look, recorded).balanced);
        let lost = BatchLedger { applied: 6, ..recorded };
        assert_eq!(judge(&look, lost).differences.len(), 1);
        let ledger = MovedLedger { moved: 11, ..ledger };
        let more = BufferLook { ledger, ..look };
        assert!(judge(&more, recorded).differences[0].contains("11 against 10"));
    }
}
