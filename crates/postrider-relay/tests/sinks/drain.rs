//! A relay that drains an outbox to a broker in trouble, and what must hold at the end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::NewEvent;
use postrider_relay::{OutboxConfig, Preset, RateLimit, Sink};
use postrider_store::{ClaimMode, StoreKind};
use postrider_testkit::{
    TempFolder, TestDb, eventually,
    relay::{RunningRelay, quick_config, quick_preset},
    sinks::Arrived,
};

const KEYS: usize = 20;
/// Maximum number of events of one drain. Two drains that share a destination have no number in
/// common.
const EVENTS_MAX: usize = 1_000_000;

static DRAINS: AtomicUsize = AtomicUsize::new(0);

/// An outbox, its relay, and what was appended to it.
pub(crate) struct Drain {
    pub(crate) db: TestDb,
    relay: RunningRelay,
    mode: ClaimMode,
    /// Key and position, by payload.
    appended: HashMap<String, (String, usize)>,
    /// Payloads of events that their destination refuses because of their content, and the number
    /// of such events.
    refused: HashSet<String>,
    refused_count: i64,
    /// Number of events that went to a place that can no longer be read.
    forgotten: usize,
    numbers: usize,
    _folder: TempFolder,
}

impl Drain {
    /// Starts with an empty outbox. `per_second` slows the relay down, so that trouble occurs while
    /// it works.
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
        let (appended, refused, refused_count, forgotten) = Default::default();
        Some(Self {
            db,
            relay,
            mode,
            appended,
            refused,
            refused_count,
            forgotten,
            numbers,
            _folder: folder,
        })
    }

    /// Appends events with keys in turn. The payload identifies each event.
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

    /// Appends an event that its destination refuses: of this type, with this payload.
    pub(crate) async fn append_refused(&mut self, event_type: &str, payload: &str) {
        let key = key(self.numbers);
        self.refused.insert(payload.to_owned());
        self.refused_count += 1;
        self.db.append(&[NewEvent::new("account", key, event_type, payload)]).await;
        self.relay.waker.wake();
    }

    /// Forgets what was appended so far: it went to a place that can no longer be read.
    pub(crate) fn forget(&mut self) {
        self.forgotten += self.appended.len();
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

    /// Checks that everything is delivered or refused as expected, that no event was charged for an
    /// outage, and that the broker has what the ledger says, in order if order is kept.
    pub(crate) async fn ends_with(self, arrived: &[Arrived]) {
        self.until_left(0).await;
        let seen = self.seen(arrived);
        self.relay.stop().await;
        let refused = self.refused_count;
        assert_eq!(self.db.count("_dlq").await, refused, "dead letters");
        let of_living = format!(
            "_attempts WHERE event_id NOT IN (SELECT event_id FROM {}_dlq)",
            self.db.outbox.table()
        );
        assert_eq!(self.db.count(&of_living).await, 0, "attempts were spent on an outage");
        assert_eq!(seen, self.appended.len(), "nothing is lost");
        self.db.assert_balanced().await;
        let (mut delivered, mut dead) = (0, 0);
        for window in self.db.ledger().await {
            delivered += window.delivered.count;
            dead += window.dead.count;
        }
        let at_broker = i64::try_from(seen + self.forgotten).unwrap();
        assert_eq!((delivered, dead), (at_broker, refused), "the ledger says what the broker has");
    }

    /// Returns how many events are at the broker. The first copy of each counts.
    fn seen(&self, arrived: &[Arrived]) -> usize {
        let (mut seen, mut newest) = (HashSet::new(), HashMap::new());
        for message in arrived {
            assert!(!self.refused.contains(&message.payload), "a dead letter is there");
            let Some((key, id)) = self.appended.get(&message.payload) else { continue };
            if seen.insert(*id) && self.mode == ClaimMode::Lanes {
                let last = newest.entry(key).or_insert(&0);
                assert!(id > last, "key {key}: {id} after {last}");
                *last = id;
            }
        }
        seen.len()
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
