//! The Kafka consumer on real brokers and databases: each event's work once, whatever comes
//! between.
// A test fails by panicking; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use postrider::Inbox;
use postrider_consumer::{
    ConsumerPool, HandleError, Handler, KafkaConsumer, KafkaConsumerSettings, KafkaError,
    KafkaMessage,
};
use postrider_store::{ConsumerLedger, Event, StoreKind};
use postrider_testkit::{
    FaultProxy, PATIENCE, TestDb, eventually,
    sinks::{Destination, KafkaDestination, deliver_all, events_of_keys},
};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use sqlx::AssertSqlSafe;
use sqlx::pool::PoolOptions;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Writes each event into a table; chokes on what it is told to choke on.
#[derive(Clone, Default)]
struct Effects {
    chokes: Arc<AtomicBool>,
    /// How often it was called.
    calls: Arc<AtomicUsize>,
}

impl Effects {
    fn statement(&self, messages: &[KafkaMessage]) -> Result<String, HandleError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut rows = Vec::new();
        for message in messages {
            if self.chokes.load(Ordering::Relaxed) {
                match message.payload.as_slice() {
                    b"\"poison\"" => return Err(HandleError::Poison("cannot be read".to_owned())),
                    b"\"bomb\"" => panic!("boom"),
                    _ => {}
                }
            }
            rows.push(format!("('{}', {})", message.event.event_id, message.partition));
        }
        Ok(format!("INSERT INTO effects (event_id, place) VALUES {}", rows.join(", ")))
    }
}

macro_rules! effects_on {
    ($($db:ty),*) => {$(
        #[async_trait]
        impl Handler<$db> for Effects {
            async fn handle(
                &self,
                transaction: &mut <$db as sqlx::Database>::Connection,
                messages: &[KafkaMessage],
            ) -> Result<(), HandleError> {
                let statement = self.statement(messages)?;
                sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *transaction).await?;
                for message in messages {
                    // What it should not do: the error is lost.
                    let careless = match message.payload.as_slice() {
                        b"\"passes over an error\"" => "INSERT INTO nowhere VALUES (1)",
                        b"\"rolls back\"" => "ROLLBACK",
                        _ => continue,
                    };
                    drop(sqlx::raw_sql(careless).execute(&mut *transaction).await);
                }
                Ok(())
            }
        }
    )*};
}
effects_on!(sqlx::Postgres, sqlx::MySql, sqlx::Sqlite);

/// A database with a table of effects, and a topic.
struct Place {
    db: TestDb,
    topic: KafkaDestination,
    effects: Effects,
    /// Where consumers reach the database.
    url: String,
    /// How often consumers took a connection out of their pool: at least once per transaction.
    acquired: Arc<AtomicUsize>,
}

/// A consumer that runs.
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), KafkaError>>,
}

impl Running {
    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }
}

impl Place {
    async fn open(kind: StoreKind, test: &str) -> Option<Self> {
        let topic = KafkaDestination::shared(test).await?;
        let db = TestDb::open_empty(kind, test).await?;
        db.store.migrate(&[]).await.unwrap();
        // Not unique: a second effect must show.
        db.execute("CREATE TABLE effects (event_id varchar(100), place integer)").await;
        let url = db.url.clone();
        Some(Self { db, topic, effects: Effects::default(), url, acquired: Arc::default() })
    }

    async fn send(&self, events: &[Event]) {
        deliver_all(self.topic.sink().as_ref(), events).await;
    }

    async fn consume(&self) -> Running {
        match self.db.store.kind() {
            StoreKind::Postgres => {
                let pool = self.pool_options::<sqlx::Postgres>().connect(&self.url).await;
                self.start(pool.unwrap())
            }
            StoreKind::Mysql => {
                let pool = self.pool_options::<sqlx::MySql>().connect(&self.url).await;
                self.start(pool.unwrap())
            }
            StoreKind::Sqlite => {
                let options = postrider::sqlite::connect_options(&self.url).unwrap();
                let pool = self.pool_options::<sqlx::Sqlite>().connect_with(options).await;
                self.start(pool.unwrap())
            }
        }
    }

    fn pool_options<D: sqlx::Database>(&self) -> PoolOptions<D> {
        let acquired = Arc::clone(&self.acquired);
        PoolOptions::new().before_acquire(move |_, _| {
            acquired.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(true) })
        })
    }

    /// Waits until consumers have begun so many more transactions.
    async fn more_transactions(&self, count: usize) {
        let before = self.acquired.load(Ordering::Relaxed);
        let look = async || (self.acquired.load(Ordering::Relaxed) >= before + count).then_some(());
        eventually(&format!("{count} more transactions"), look).await;
    }

    fn start<P: ConsumerPool>(&self, pool: P) -> Running
    where
        Effects: Handler<P::Db>,
    {
        let mut settings =
            KafkaConsumerSettings::new(&self.topic.brokers, &self.topic.topic, &self.topic.topic);
        settings.batch_max = 100;
        let inbox = Inbox::new("effects").unwrap();
        let consumer = KafkaConsumer::new(settings, pool, inbox, self.effects.clone()).unwrap();
        let (stop, stopped) = watch::channel(false);
        Running { stop, task: tokio::spawn(consumer.run(stopped)) }
    }

    async fn count(&self) -> i64 {
        self.db.integer("SELECT count(*) FROM effects").await
    }

    /// Waits until so many events have had their effect.
    async fn applied(&self, count: i64) {
        let look = async || (self.count().await >= count).then_some(());
        eventually(&format!("{count} events are applied"), look).await;
    }

    async fn ledger(&self) -> ConsumerLedger {
        let ledgers = self.db.store.consumer_ledgers().await.unwrap();
        let [ledger] = ledgers.as_slice() else { panic!("{ledgers:?}") };
        assert!(ledger.balanced(), "{ledger:?}");
        ledger.clone()
    }

    /// Each event once, in the table and in the ledger.
    async fn each_once(&self, count: i64) {
        assert_eq!(self.count().await, count);
        let distinct = "SELECT count(DISTINCT event_id) FROM effects";
        assert_eq!(self.db.integer(distinct).await, count, "none twice");
        let ledger = self.ledger().await;
        assert_eq!((ledger.applied, ledger.dead), (count, 0), "{ledger:?}");
    }
}

macro_rules! on_store {
    ($module:ident, $kind:ident: $($case:ident),* $(,)?) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    let name = concat!(module_path!(), "::", stringify!($case));
                    let kind = postrider_store::StoreKind::$kind;
                    if let Some(place) = super::Place::open(kind, name).await {
                        super::$case(place).await;
                    }
                }
            )*
        }
    };
}

on_store!(postgres, Postgres:
    events_that_come_twice_are_applied_once_and_counted_as_ignored,
    a_poison_message_is_a_letter_and_is_handled_when_an_operator_asks,
    a_consumer_that_dies_without_a_word_is_followed_by_one_that_repeats_nothing,
    a_rebalance_in_the_middle_applies_each_event_once,
    an_inbox_that_is_missing_is_waited_for_and_no_message_is_blamed,
    what_only_the_inbox_refuses_is_waited_for_though_a_letter_could_be_written,
    a_letter_that_cannot_be_written_leaves_the_message_to_be_handled_again,
    a_handler_that_passes_over_the_end_of_its_transaction_loses_no_message,
    a_database_that_goes_away_holds_messages_back_and_loses_none,
);
on_store!(mysql, Mysql:
    events_that_come_twice_are_applied_once_and_counted_as_ignored,
    a_poison_message_is_a_letter_and_is_handled_when_an_operator_asks,
    a_consumer_that_dies_without_a_word_is_followed_by_one_that_repeats_nothing,
    a_rebalance_in_the_middle_applies_each_event_once,
    an_inbox_that_is_missing_is_waited_for_and_no_message_is_blamed,
    a_letter_that_cannot_be_written_leaves_the_message_to_be_handled_again,
    a_handler_that_passes_over_the_end_of_its_transaction_loses_no_message,
    a_database_that_goes_away_holds_messages_back_and_loses_none,
);
// A file does not go away, and refuses to commit what is no longer a transaction.
on_store!(sqlite, Sqlite:
    identities_that_are_not_text_are_told_apart,
    transactions_of_a_producer_count_when_they_are_committed,
    events_that_come_twice_are_applied_once_and_counted_as_ignored,
    a_poison_message_is_a_letter_and_is_handled_when_an_operator_asks,
    a_consumer_that_dies_without_a_word_is_followed_by_one_that_repeats_nothing,
    a_rebalance_in_the_middle_applies_each_event_once,
    an_inbox_that_is_missing_is_waited_for_and_no_message_is_blamed,
    what_only_the_inbox_refuses_is_waited_for_though_a_letter_could_be_written,
    a_letter_that_cannot_be_written_leaves_the_message_to_be_handled_again,
);

async fn events_that_come_twice_are_applied_once_and_counted_as_ignored(place: Place) {
    let events = events_of_keys(1, 250, 5);
    place.send(&events).await;
    place.send(&events[..50]).await;
    let consumer = place.consume().await;
    place.applied(250).await;
    let all = async || (place.ledger().await.received == 300).then_some(());
    eventually("the repeats are counted", all).await;
    consumer.stop().await;
    place.each_once(250).await;
    assert_eq!(place.ledger().await.ignored, 50);
    // What was stopped in order has told the broker: nothing comes again.
    let consumer = place.consume().await;
    let late = events_of_keys(1_000, 1, 1);
    place.send(&late).await;
    place.applied(251).await;
    consumer.stop().await;
    assert_eq!(place.ledger().await.received, 301);
    place.topic.remove().await;
}

/// Identities of other programs may be any bytes, such as those of a UUID.
async fn identities_that_are_not_text_are_told_apart(place: Place) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &place.topic.brokers);
    let producer: BaseProducer = config.create().unwrap();
    let ids = (128..=255_u8).map(|byte| [byte, 0, 1]);
    for id in ids.chain([[128, 0, 1]]) {
        let header = Header { key: "postrider-event-id", value: Some(&id) };
        let headers = OwnedHeaders::new().insert(header);
        let record = BaseRecord::<(), str>::to(&place.topic.topic).payload("{}").headers(headers);
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
    let consumer = place.consume().await;
    let all = async || {
        let ledgers = place.db.store.consumer_ledgers().await.unwrap();
        ledgers.first().is_some_and(|ledger| ledger.received == 129).then_some(())
    };
    eventually("all messages are received", all).await;
    consumer.stop().await;
    place.each_once(128).await;
    assert_eq!(place.ledger().await.ignored, 1, "the one that came twice");
    place.topic.remove().await;
}

/// Aborted messages never arrive, open ones wait, and markers of transactions only take offsets.
async fn transactions_of_a_producer_count_when_they_are_committed(place: Place) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &place.topic.brokers);
    let plain: BaseProducer = config.create().unwrap();
    config.set("transactional.id", &place.topic.topic);
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    let send = |producer: &BaseProducer, partition: i32, id: &str| {
        let header = Header { key: "postrider-event-id", value: Some(id) };
        let headers = OwnedHeaders::new().insert(header);
        let record = BaseRecord::<(), str>::to(&place.topic.topic).payload("{}").headers(headers);
        producer.send(record.partition(partition)).map_err(|(error, _)| error).unwrap();
        producer.flush(PATIENCE).unwrap();
    };
    // Each identity is aborted first: it is an event all the same.
    for number in 0..20 {
        for commits in [false, true] {
            producer.begin_transaction().unwrap();
            send(&producer, 0, &format!("event-{number}"));
            send(&producer, 0, &format!("{number}-{commits}"));
            match commits {
                true => producer.commit_transaction(PATIENCE).unwrap(),
                false => producer.abort_transaction(PATIENCE).unwrap(),
            }
        }
    }
    let consumer = place.consume().await;
    place.applied(40).await;
    consumer.stop().await;
    producer.begin_transaction().unwrap();
    send(&producer, 0, "open");
    send(&plain, 0, "behind the open one");
    send(&plain, 1, "elsewhere");
    let consumer = place.consume().await;
    place.applied(41).await;
    assert_eq!(place.count().await, 41, "what is open waits, and what is behind it");
    producer.commit_transaction(PATIENCE).unwrap();
    place.applied(43).await;
    consumer.stop().await;
    place.each_once(43).await;
    assert_eq!(place.ledger().await.received, 43, "nothing came twice");
    let aborted = "SELECT count(*) FROM effects WHERE event_id LIKE '%-false'";
    assert_eq!(place.db.integer(aborted).await, 0);
    place.topic.remove().await;
}

async fn a_poison_message_is_a_letter_and_is_handled_when_an_operator_asks(place: Place) {
    let mut events = events_of_keys(1, 40, 4);
    events[7].payload = "\"poison\"".to_owned();
    events[23].payload = "\"bomb\"".to_owned();
    place.effects.chokes.store(true, Ordering::Relaxed);
    place.send(&events).await;
    let consumer = place.consume().await;
    place.applied(38).await;
    let two = async || (place.ledger().await.unresolved == 2).then_some(());
    eventually("both are letters", two).await;
    let ledger = place.ledger().await;
    assert_eq!((ledger.received, ledger.applied, ledger.ignored, ledger.dead), (40, 38, 0, 2));
    let letters = place.db.store.inbox_letters(Some("effects"), None, 10).await.unwrap();
    let mut errors: Vec<&str> = letters.iter().map(|l| l.error_message.as_str()).collect();
    errors.sort_unstable();
    assert_eq!(errors, ["cannot be read", "the handler panicked: boom"]);
    let poison = letters.iter().find(|letter| letter.event_id == events[7].event_id).unwrap();
    assert_eq!(poison.payload, b"\"poison\"");
    assert!(poison.source.starts_with(&place.topic.topic) && poison.key.is_some());

    // Asked for before it is mended: it fails again, and waits again.
    let store = &place.db.store;
    store.retry_inbox_letter(poison.id, "ann", "").await.unwrap();
    let failed = format!(
        "SELECT count(*) FROM postrider_inbox_dlq WHERE id = {} AND retry_asked_at IS NULL",
        poison.id
    );
    let back = async || (place.db.integer(&failed).await == 1).then_some(());
    eventually("it failed again", back).await;
    place.effects.chokes.store(false, Ordering::Relaxed);
    for letter in &letters {
        store.retry_inbox_letter(letter.id, "ann", "mended").await.unwrap();
    }
    place.applied(40).await;
    consumer.stop().await;
    place.each_once(40).await;
    assert_eq!(place.ledger().await.unresolved, 0);
    place.topic.remove().await;
}

/// On PostgreSQL, the COMMIT of a failed transaction rolls back and is answered as usual.
async fn a_handler_that_passes_over_the_end_of_its_transaction_loses_no_message(place: Place) {
    let mut events = events_of_keys(1, 20, 1);
    events[5].payload = "\"rolls back\"".to_owned();
    events[9].payload = "\"passes over an error\"".to_owned();
    let lost = match place.db.store.kind() {
        StoreKind::Postgres => 2,
        // An error ends the statement there, not the transaction.
        _ => 1,
    };
    place.send(&events).await;
    let consumer = place.consume().await;
    place.applied(20 - lost).await;
    let letters = async || (place.ledger().await.unresolved == lost).then_some(());
    eventually("nothing is lost", letters).await;
    consumer.stop().await;
    let ledger = place.ledger().await;
    assert_eq!((ledger.received, ledger.applied, ledger.dead), (20, 20 - lost, lost));
    place.topic.remove().await;
}

async fn a_consumer_that_dies_without_a_word_is_followed_by_one_that_repeats_nothing(place: Place) {
    place.send(&events_of_keys(1, 1_000, 7)).await;
    let consumer = place.consume().await;
    place.applied(1).await;
    consumer.task.abort();
    let consumer = place.consume().await;
    place.applied(1_000).await;
    consumer.stop().await;
    place.each_once(1_000).await;
    place.topic.remove().await;
}

async fn a_rebalance_in_the_middle_applies_each_event_once(place: Place) {
    let first = place.consume().await;
    place.send(&events_of_keys(1, 500, 9)).await;
    place.applied(100).await;
    let second = place.consume().await;
    place.send(&events_of_keys(501, 500, 9)).await;
    place.applied(700).await;
    first.stop().await;
    place.applied(1_000).await;
    second.stop().await;
    place.each_once(1_000).await;
    place.topic.remove().await;
}

/// Somebody renamed it, or a right is missing: the database refuses each message alike.
async fn an_inbox_that_is_missing_is_waited_for_and_no_message_is_blamed(place: Place) {
    let consumer = place.consume().await;
    place.send(&events_of_keys(1, 100, 3)).await;
    place.applied(100).await;
    place.db.execute("ALTER TABLE postrider_inbox RENAME TO hidden").await;
    place.send(&events_of_keys(101, 100, 3)).await;
    place.more_transactions(4).await;
    place.db.execute("ALTER TABLE hidden RENAME TO postrider_inbox").await;
    place.applied(200).await;
    consumer.stop().await;
    place.each_once(200).await;
    place.topic.remove().await;
}

/// Receiving fails, but writing a dead letter would work. A consumer that blamed the messages for
/// the refusal would move all of them to the dead letters. (MariaDB cannot refuse one without the
/// other.)
async fn what_only_the_inbox_refuses_is_waited_for_though_a_letter_could_be_written(place: Place) {
    let (refuse, allow) = match place.db.store.kind() {
        StoreKind::Sqlite => (
            "CREATE TRIGGER only_letters BEFORE INSERT ON postrider_inbox
             WHEN NEW.outcome = 'applied' BEGIN SELECT RAISE(ABORT, 'only letters'); END",
            "DROP TRIGGER only_letters",
        ),
        _ => (
            "ALTER TABLE postrider_inbox ADD CONSTRAINT only_letters CHECK (outcome = 'dead')",
            "ALTER TABLE postrider_inbox DROP CONSTRAINT only_letters",
        ),
    };
    place.db.execute(refuse).await;
    place.send(&events_of_keys(1, 100, 3)).await;
    let consumer = place.consume().await;
    place.more_transactions(4).await;
    place.db.execute(allow).await;
    place.applied(100).await;
    consumer.stop().await;
    place.each_once(100).await;
    place.topic.remove().await;
}

/// Neither handled nor moved to the dead letters: it is tried again, both ways, until one of them
/// works.
async fn a_letter_that_cannot_be_written_leaves_the_message_to_be_handled_again(place: Place) {
    place.db.execute("ALTER TABLE postrider_inbox_dlq RENAME TO hidden").await;
    let mut events = events_of_keys(1, 10, 1);
    events[4].payload = "\"poison\"".to_owned();
    place.effects.chokes.store(true, Ordering::Relaxed);
    place.send(&events).await;
    let consumer = place.consume().await;
    place.applied(4).await;
    let calls = place.effects.calls.load(Ordering::Relaxed);
    let tried = async || (place.effects.calls.load(Ordering::Relaxed) >= calls + 2).then_some(());
    eventually("the handler is asked again", tried).await;
    assert_eq!(place.count().await, 4, "those behind it wait");
    place.effects.chokes.store(false, Ordering::Relaxed);
    place.applied(10).await;
    consumer.stop().await;
    place.db.execute("ALTER TABLE hidden RENAME TO postrider_inbox_dlq").await;
    place.each_once(10).await;
    place.topic.remove().await;
}

async fn a_database_that_goes_away_holds_messages_back_and_loses_none(mut place: Place) {
    let (proxy, url) = FaultProxy::in_front_of(&place.db.url).await;
    place.url = url;
    place.send(&events_of_keys(1, 300, 3)).await;
    let consumer = place.consume().await;
    place.applied(1).await;
    proxy.cut();
    place.send(&events_of_keys(301, 300, 3)).await;
    proxy.pass();
    place.applied(600).await;
    consumer.stop().await;
    place.each_once(600).await;
    place.topic.remove().await;
}
