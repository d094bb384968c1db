//! CloudEvents by the NATS binding.

use postrider_relay::{
    Outcome,
    message::{EnvelopeSettings, Form},
    sinks::{NatsSettings, NatsSink},
};
use postrider_store::Event;
use postrider_testkit::{
    relay::held_event,
    sinks::{Destination, NatsDestination, deliver},
};

/// Attributes have their own names, and are percent-encoded where they are not printable ASCII.
#[tokio::test(flavor = "multi_thread")]
async fn a_binary_event_has_its_content_type_as_an_attribute_and_encoded_values() {
    let test = concat!(module_path!(), "::a_binary_event");
    let Some(stream) = NatsDestination::shared(test).await else { return };
    let settings = NatsSettings {
        envelope: EnvelopeSettings { form: Form::CloudEventsBinary, ..Default::default() },
        subject: Some(format!("{}.all", stream.name)),
        ..stream.settings()
    };
    let sink = NatsSink::new(settings).expect("settings in order");
    let event = Event {
        aggregate_id: "größe 100%".to_owned(),
        event_type: "a \"b\"".to_owned(),
        ..held_event(1)
    };
    assert_eq!(deliver(&sink, &[event], false).await, [Outcome::Delivered]);
    let headers = stream.arrived().await.remove(0).headers;
    let found = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!(found("ce-specversion"), Some("1.0"), "{headers:?}");
    assert_eq!(found("ce-datacontenttype"), Some("application/json"), "{headers:?}");
    assert_eq!(found("ce-subject"), Some("gr%C3%B6%C3%9Fe%20100%25"), "{headers:?}");
    assert_eq!(found("ce-type"), Some("a%20%22b%22"), "{headers:?}");
    stream.remove().await;
}
