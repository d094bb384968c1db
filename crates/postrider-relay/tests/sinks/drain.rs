//! A relay that drains an outbox to a broker in trouble, and what has to hold at the end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::NewEvent;
use postrider::store::{ClaimMode, StoreKind};
use postrider_relay::{OutboxConfig, Preset, RateLimit, Sink};
use postrider_testkit::relay::{RunningRelay, quick_config, quick_preset};
use postrider_testkit::sinks::Arrived;
use postrider_testkit::{TempFolder, TestDb, eventually};

const KEYS: usize = 20;
/// Events of one drain at most. Two that share a destination have no number in common.
const EVENTS_MAX: usize = 1_000_000;

static DRAINS: AtomicUsize = AtomicUsize::new(0);

/// An outbox, its relay, and what was appended to it.
pub(crate) struct Drain {
    pub(crate) db: TestDb,
    relay: RunningRelay,
    mode: ClaimMode,
    /// Key and place by payload.
    appended: HashMap<String, (String, usize)>,
    numbers: usize,
    _folder: TempFolder,
}

impl Drain {
    /// Starts with an empty outbox. `per_second` holds the relay back, so that trouble finds it at
    /// work.
    pub(crate) async fn start(
        test: &str,
        mode: ClaimMode,
        sink: Arc<dyn Sink>,
        per_second: Option<f64>,
    ) -> Option<Self> {
        let db = TestDb::open(StoreKind::Postgres, test).await?;
        db.store.set_mode(&db.outbox, mode, "test").await.unwrap();
        let preset = Preset { batch: 50, idle_poll: Duration::from_millis(200), ..quick_preset() };
        let outbox = OutboxConfig {
            rate: per_second.map(|rate| RateLimit::new(rate, 50).map(Arc::new).unwrap()),
            deliver_timeout: Duration::from_secs(5),
            ..OutboxConfig::new(db.outbox.clone(), preset, sink)
        };
        let numbers = DRAINS.fetch_add(1, Ordering::Relaxed) * EVENTS_MAX + 1;
        let folder = TempFolder::new();
        let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
        Some(Self { db, relay, mode, appended: HashMap::new(), numbers, _folder: folder })
    }

    /// Appends events, their keys taken in turns. The payload tells one from the other.
    pub(crate) async fn append(&mut self, count: usize) {
        let first = self.numbers;
        self.numbers += count;
        for start in (first..self.numbers).step_by(500) {
            let numbers = start..self.numbers.min(start + 500);
            let events: Vec<NewEvent> = numbers.clone().map(event).collect();
            for number in numbers {
                self.appended.insert(payload(number), (key(number), number));
            }
            self.db.append(&events).await;
            self.relay.waker.wake();
        }
    }

    /// Forgets what was appended so far: it went where nobody can look for it any more.
    pub(crate) fn forget(&mut self) {
        self.appended.clear();
    }

    pub(crate) async fn left(&self) -> usize {
        usize::try_from(self.db.count("").await).unwrap()
    }

    pub(crate) async fn until_left(&self, count: usize) {
        let what = format!("no more than {count} events are left");
        eventually(&what, async || (self.left().await <= count).then_some(())).await;
    }

    /// Waits until an event was refused with these words.
    pub(crate) async fn until_refused(&self, words: &str) {
        let refused = format!(" WHERE last_error ILIKE '%{words}%'");
        let what = format!("an event is refused: {words}");
        eventually(&what, async || (self.db.count(&refused).await > 0).then_some(())).await;
    }

    /// Everything is delivered, no event is blamed, and the broker has what the ledger says, in
    /// order where it is kept.
    pub(crate) async fn ends_with(self, arrived: &[Arrived]) {
        self.ends_with_dead(arrived, 0).await;
    }

    /// The same, with dead letters of events that were refused for what they are. They are not
    /// among what was appended.
    pub(crate) async fn ends_with_dead(self, arrived: &[Arrived], dead: i64) {
        self.until_left(0).await;
        self.relay.stop().await;
        assert_eq!(self.db.count("_dlq").await, dead, "dead letters");
        let of_living = format!(
            "_attempts WHERE event_id NOT IN (SELECT event_id FROM {}_dlq)",
            self.db.outbox.table()
        );
        assert_eq!(self.db.count(&of_living).await, 0, "attempts were spent on an outage");
        let (mut seen, mut newest) = (HashSet::new(), HashMap::new());
        for message in arrived {
            let Some((key, id)) = self.appended.get(&message.payload) else { continue };
            // Of all copies the first of each event counts.
            if seen.insert(*id) && self.mode == ClaimMode::Lanes {
                let last = newest.entry(key).or_insert(&0);
                assert!(id > last, "key {key}: {id} after {last}");
                *last = id;
            }
        }
        assert_eq!(seen.len(), self.appended.len(), "nothing is lost");
        self.db.assert_balanced().await;
    }
}

fn key(number: usize) -> String {
    format!("key-{}", number % KEYS)
}

fn payload(number: usize) -> String {
    format!(r#"{{"n":{number}}}"#)
}

fn event(number: usize) -> NewEvent {
    NewEvent::new("account", key(number), "OrderPlaced", payload(number))
}
