//! The log sink logs what was delivered, and never its content.

use std::io::Write;
use std::sync::{Arc, Mutex};

use postrider_relay::{Batch, Outcome, Sink, sinks::LogSink};
use postrider_store::Event;
use postrider_testkit::relay::held_event;
use tokio::time::Instant;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn payloads_and_headers_are_not_logged() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let event = Event {
        payload: "hush-payload".to_owned(),
        headers: Some(r#"{"authorization":"hush-header"}"#.to_owned()),
        ..held_event(7)
    };
    let events = [event, held_event(8)];
    let sink = LogSink::new("log");
    let outcomes = sink.deliver(Batch::new(&events, Instant::now())).await;
    assert_eq!(outcomes, [Outcome::Delivered, Outcome::Delivered]);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("order-7") && text.contains("order-8"), "{text}");
    assert!(text.contains("payload_bytes=12"), "{text}");
    assert!(!text.contains("hush"), "{text}");
}
