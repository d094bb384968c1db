//! A cache in this process, limited in answers and bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::ops::compute::Op;
use moka::sync::Cache;

use super::{Answer, Keep, Kept, Key};

pub(crate) struct Memory(Cache<Key, Entry>);

#[derive(Clone)]
struct Entry {
    answer: Arc<Answer>,
    fresh_until: Instant,
    kept_for: Duration,
}

/// Expires each answer after its own time.
struct ByEntry;

impl Expiry<Key, Entry> for ByEntry {
    fn expire_after_create(&self, _: &Key, entry: &Entry, _: Instant) -> Option<Duration> {
        Some(entry.kept_for)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        entry: &Entry,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(entry.kept_for)
    }
}

impl Memory {
    pub(crate) fn new(entries_max: u64, bytes_max: u64) -> Result<Self, String> {
        if entries_max == 0 || bytes_max == 0 {
            return Err("`cache_entries_max` and `cache_bytes_max` are at least 1".to_owned());
        }
        // One limit covers both: no answer weighs less than its share of the bytes, so there cannot
        // be more answers than allowed.
        let lightest = bytes_max.div_ceil(entries_max);
        let weigh = move |_: &Key, entry: &Entry| {
            let bytes = (entry.answer.weight_bytes() as u64).max(lightest);
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder().max_capacity(bytes_max).weigher(weigh);
        Ok(Self(cache.expire_after(ByEntry).build()))
    }

    pub(crate) fn get(&self, key: Key) -> Option<Kept> {
        let entry = self.0.get(&key)?;
        Some(Kept { is_fresh: Instant::now() < entry.fresh_until, answer: entry.answer })
    }

    pub(crate) fn put(&self, key: Key, answer: &Arc<Answer>, keep: Keep) {
        self.0.entry(key).and_compute_with(|known| match known {
            Some(known) if known.value().answer.asked_at_ms > answer.asked_at_ms => Op::Nop,
            _ => Op::Put(Entry {
                answer: Arc::clone(answer),
                fresh_until: Instant::now() + keep.fresh_for,
                kept_for: keep.total(),
            }),
        });
    }

    pub(crate) fn remove(&self, key: Key, asked_at_ms: u64) {
        self.0.entry(key).and_compute_with(|known| match known {
            Some(known) if known.value().answer.asked_at_ms <= asked_at_ms => Op::Remove,
            _ => Op::Nop,
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::gateway::Call;

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(number: usize) -> Key {
        Call::get(format!("/{number}")).unwrap().key()
    }

    fn answer(bytes: usize, asked_at_ms: u64) -> Arc<Answer> {
        let body = Bytes::from(vec![b'x'; bytes]);
        Arc::new(Answer::new(StatusCode::OK, HeaderMap::new(), body, asked_at_ms))
    }

    fn kept(memory: &Memory) -> u64 {
        memory.0.run_pending_tasks();
        memory.0.entry_count()
    }

    #[test]
    fn it_is_limited_in_answers_and_in_bytes() {
        let keep = Keep { fresh_for: MINUTE, stale_for: Duration::ZERO };
        let few = Memory::new(10, 1_000_000).unwrap();
        let small = Memory::new(1_000, 10_000).unwrap();
        for number in 0..200 {
            few.put(key(number), &answer(1, 1), keep);
            small.put(key(number), &answer(1_000, 1), keep);
        }
        assert!((1..=10).contains(&kept(&few)), "{}", kept(&few));
        assert!((1..=10).contains(&kept(&small)), "{}", kept(&small));
        assert!(Memory::new(0, 1).is_err() && Memory::new(1, 0).is_err());
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let memory = Memory::new(10, 100_000).unwrap();
        let keep = Keep { fresh_for: MINUTE, stale_for: Duration::ZERO };
        let asked = |memory: &Memory| memory.get(key(1)).unwrap().answer.asked_at_ms;
        memory.put(key(1), &answer(1, 50), keep);
        memory.put(key(1), &answer(1, 40), keep);
        assert_eq!(asked(&memory), 50);
        memory.put(key(1), &answer(1, 60), keep);
        assert_eq!(asked(&memory), 60);
    }

    #[test]
    fn a_stale_answer_is_there_and_says_so() {
        let memory = Memory::new(10, 100_000).unwrap();
        let keep = Keep { fresh_for: Duration::ZERO, stale_for: MINUTE };
        memory.put(key(1), &answer(1, 1), keep);
        assert!(!memory.get(key(1)).unwrap().is_fresh);
        memory.put(key(2), &answer(1, 1), Keep { stale_for: Duration::ZERO, ..keep });
        assert!(memory.get(key(2)).is_none());
    }
}
