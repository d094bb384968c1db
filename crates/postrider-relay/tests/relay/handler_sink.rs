//! Handlers in the same process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_relay::{
    Batch, Cause, OutboxConfig, Outcome, Sink,
    sinks::{HandlerError, HandlerSink},
};
use postrider_store::Event;
use postrider_testkit::{
    TempFolder, TestDb,
    conformance::steps::order,
    eventually, on_each_store,
    relay::{RunningRelay, held_event, quick_config, quick_preset},
};
use tokio::time::Instant;

on_each_store!(an_event_type_without_a_handler_is_dead_at_once);

fn typed(id: i64, event_type: &str) -> Event {
    Event { event_type: event_type.to_owned(), ..held_event(id) }
}

async fn deliver(sink: &HandlerSink, events: &[Event], time: Duration) -> Vec<Outcome> {
    sink.deliver(Batch::new(events, Instant::now() + time)).await
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn each_answer_of_a_handler_has_its_outcome() {
    let sink = HandlerSink::new("handlers")
        .on("Good", |_| async { Ok(()) })
        .on("Retry", |_| async { Err(HandlerError::Retry("r".to_owned())) })
        .on("Reject", |_| async { Err(HandlerError::Reject("x".to_owned())) })
        .on("Down", |_| async { Err(HandlerError::Down("d".to_owned())) })
        .on("Panics", |_| async { panic!("inside") })
        .on("PanicsAtOnce", |event: Event| {
            assert!(event.id < 0, "before the first await");
            async { Ok(()) }
        });
    let types =
        ["Good", "Retry", "Reject", "Down", "Panics", "PanicsAtOnce", "Unknown", "good", "Good"];
    let events: Vec<_> = (1..).zip(types).map(|(id, name)| typed(id, name)).collect();
    let outcomes = deliver(&sink, &events, LONG).await;
    let error = |text: &str| text.to_owned();
    let panicked = Outcome::Retry { error: error("the handler panicked") };
    let missing = |name| Outcome::NoRoute {
        error: format!("no handler is registered for event type `{name}`"),
    };
    let expected = [
        Outcome::Delivered,
        Outcome::Retry { error: error("r") },
        Outcome::Rejected { error: error("x"), detail: None },
        Outcome::Down {
            error: error("d"),
            retry_after: None,
            credentials: false,
            cause: Cause::Unknown,
        },
        panicked.clone(),
        panicked,
        missing("Unknown"),
        missing("good"),
        Outcome::Delivered,
    ];
    assert_eq!(outcomes, expected, "one each, in order, whatever the neighbours do");
}

#[tokio::test]
async fn a_handler_that_never_ends_is_cut_off_and_the_others_count() {
    let sink = HandlerSink::new("handlers")
        .on("Good", |_| async { Ok(()) })
        .on("Hangs", |_| std::future::pending());
    let events = [typed(1, "Good"), typed(2, "Hangs"), typed(3, "Good")];
    let outcomes = deliver(&sink, &events, Duration::from_millis(100)).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    assert!(matches!(&outcomes[1], Outcome::Retry { error } if error.contains("in time")));
}

#[tokio::test]
async fn what_did_not_begin_before_the_deadline_is_untried() {
    let sink =
        HandlerSink::new("handlers").on("Hangs", |_| std::future::pending()).concurrency_max(1);
    let events = [typed(1, "Hangs"), typed(2, "Hangs"), typed(3, "Hangs")];
    let outcomes = deliver(&sink, &events, Duration::from_millis(50)).await;
    assert!(matches!(outcomes[0], Outcome::Retry { .. }));
    assert_eq!(outcomes[1..], [Outcome::Untried, Outcome::Untried]);
}

#[tokio::test]
async fn no_more_handlers_run_at_once_than_allowed() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&now), Arc::clone(&most));
    let sink = HandlerSink::new("handlers")
        .on("Good", move |_| {
            let (now, most) = counted.clone();
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                // Gives every other handler time to begin.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .concurrency_max(4);
    let events: Vec<_> = (1..=40).map(|id| typed(id, "Good")).collect();
    let outcomes = deliver(&sink, &events, LONG).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Delivered));
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

async fn an_event_type_without_a_handler_is_dead_at_once(db: TestDb) {
    let folder = TempFolder::new();
    let sink = Arc::new(HandlerSink::new("handlers").on("Other", |_| async { Ok(()) }));
    let outbox = OutboxConfig::new(db.outbox.clone(), quick_preset(), sink);
    let relay = RunningRelay::on(&db.store, quick_config(&folder), outbox);
    db.append(&[order(1)]).await;
    eventually("it is dead", async || (db.count("_dlq").await == 1).then_some(())).await;
    relay.stop().await;
    let reason = "SELECT reason FROM orders_outbox_dlq WHERE retry_count = 0";
    assert_eq!(db.text(reason).await.as_deref(), Some("no_route"));
    db.assert_balanced().await;
}

/// Events 1, 3, 5 have one key, 2, 4, 6 another; the third fails.
#[tokio::test]
async fn with_order_kept_a_key_is_handled_one_at_a_time_and_stops_at_its_first_failure() {
    let handled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&handled);
    let sink = HandlerSink::new("here").on("OrderPlaced", move |event: Event| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().push(event.id);
            // Later events of a key would finish sooner if they ran at the same time.
            for _ in 0..10 - event.id {
                tokio::task::yield_now().await;
            }
            match event.id {
                3 => Err(HandlerError::Retry("not now".to_owned())),
                _ => Ok(()),
            }
        }
    });
    let events: Vec<_> =
        (1..=6).map(|id| Event { aggregate_id: (id % 2).to_string(), ..held_event(id) }).collect();
    let deadline = Instant::now() + Duration::from_secs(30);
    let outcomes = sink.deliver(Batch::new(&events, deadline).in_order(true)).await;
    for (event, outcome) in events.iter().zip(&outcomes) {
        match event.id {
            3 => assert!(matches!(outcome, Outcome::Retry { .. }), "{outcome:?}"),
            5 => assert_eq!(*outcome, Outcome::Untried),
            _ => assert_eq!(*outcome, Outcome::Delivered),
        }
    }
    let handled = handled.lock().unwrap().clone();
    let of_key = |odd: i64| handled.iter().copied().filter(|id| id % 2 == odd).collect::<Vec<_>>();
    assert_eq!((of_key(1), of_key(0)), (vec![1, 3], vec![2, 4, 6]));
}
