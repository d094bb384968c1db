//! The newest change of each target, so that an older, saved one does not overwrite it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use moka::ops::compute::Op;
use moka::sync::Cache;
use tokio::sync::OwnedMutexGuard;

use super::answer::TIME_DIGITS;
use super::call::{Call, Key};

/// Targets remembered in this process.
const TARGETS_MAX: u64 = 100_000;
/// How long a change is remembered. Saved calls are repeated within minutes after the upstream is
/// back.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3_600);

/// A change that the upstream made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// When its caller asked for it, in milliseconds since 1970.
    asked_at_ms: u64,
    /// Key of the call, to recognise its own repeat.
    call: String,
}

/// How a saved change relates to the newest known change of its target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Precedence {
    /// Nothing newer is known.
    Newest,
    /// This change has already been made, for a caller.
    Made,
    /// A newer change has been made.
    Superseded,
}

impl Change {
    pub(super) fn new(call: &Call, asked_at_ms: u64) -> Self {
        Self { asked_at_ms, call: call.key().hex() }
    }

    /// Compares this change with the newest one that is known.
    pub(super) fn beside(&self, newest: Option<&Self>) -> Precedence {
        match newest {
            Some(newest) if newest.call == self.call => Precedence::Made,
            Some(newest) if newest.asked_at_ms > self.asked_at_ms => Precedence::Superseded,
            _ => Precedence::Newest,
        }
    }

    /// Serialises time and call, for a cache that keeps bytes.
    pub(super) fn to_text(&self) -> String {
        format!("{:0TIME_DIGITS$}{}", self.asked_at_ms, self.call)
    }

    pub(super) fn from_text(text: &str) -> Option<Self> {
        let (time, call) = text.split_at_checked(TIME_DIGITS)?;
        Some(Self { asked_at_ms: time.parse().ok()?, call: call.to_owned() })
    }
}

/// The changes that this process knows. It also serialises the changes of each target.
pub(super) struct Changes {
    newest: Cache<Key, Change>,
    turns: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Default for Changes {
    fn default() -> Self {
        let newest = Cache::builder().max_capacity(TARGETS_MAX).time_to_live(REMEMBERED_FOR);
        Self { newest: newest.build(), turns: Mutex::default() }
    }
}

impl Changes {
    /// Waits until no other change of this target is in flight in this process.
    pub(super) async fn turn(&self, target: Key) -> OwnedMutexGuard<()> {
        let turn = {
            // A panic cannot leave the map half changed.
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(target).or_default())
        };
        turn.lock_owned().await
    }

    pub(super) fn newest(&self, target: Key) -> Option<Change> {
        self.newest.get(&target)
    }

    /// Records a change that the upstream made.
    pub(super) fn note(&self, target: Key, change: &Change) {
        self.newest.entry(target).and_compute_with(|known| match known {
            Some(known) if known.value().asked_at_ms > change.asked_at_ms => Op::Nop,
            _ => Op::Put(change.clone()),
        });
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn change(key: &str, asked_at_ms: u64) -> Change {
        let call = Call::new(Method::PUT, "/a").unwrap().idempotency_key(key);
        Change::new(&call, asked_at_ms)
    }

    #[test]
    fn a_change_is_superseded_by_a_newer_one_and_not_by_itself_or_an_older_one() {
        let changes = Changes::default();
        let target = Call::new(Method::PUT, "/a").unwrap().target_key();
        let saved = change("saved", 50);
        let beside = |saved: &Change| saved.beside(changes.newest(target).as_ref());
        assert_eq!(beside(&saved), Precedence::Newest);
        changes.note(target, &change("older", 40));
        assert_eq!(beside(&saved), Precedence::Newest);
        changes.note(target, &change("saved", 60));
        assert_eq!(beside(&saved), Precedence::Made);
        changes.note(target, &change("newer", 70));
        changes.note(target, &change("late answer", 65));
        assert_eq!(beside(&saved), Precedence::Superseded);
    }

    #[test]
    fn a_change_survives_as_text() {
        let kept = change("k", 1_750_000_000_000);
        assert_eq!(Change::from_text(&kept.to_text()), Some(kept));
        assert_eq!(Change::from_text("no time"), None);
    }
}
