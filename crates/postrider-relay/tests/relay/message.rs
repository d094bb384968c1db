//! The message of an event: plain, and as a CloudEvent.

use std::borrow::Cow;

use postrider_relay::{
    EventView,
    message::{Envelope, EnvelopeSettings, Form},
};
use postrider_store::Event;
use postrider_testkit::relay::held_event;
use serde_json::{Value, json};

fn event() -> Event {
    Event {
        headers: Some(
            r#"{"traceparent": "00-1", "tenant": "t1", "Postrider-Event-Id": "forged",
                "ce_id": "forged", "Content-Type": "forged"}"#
                .to_owned(),
        ),
        content_hash: Some("abc".to_owned()),
        ..held_event(7)
    }
}

/// Body, content type and headers.
type Parts = (String, String, Vec<(String, String)>);

fn message(settings: EnvelopeSettings, event: &Event) -> Parts {
    let envelope = Envelope::new(&settings).unwrap();
    let view = EventView::new(event);
    let message = envelope.message(&view, Cow::Borrowed(&event.payload), "ce_").unwrap();
    let own = |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into_owned(), value.into_owned());
    let headers = message.headers.into_iter().map(own).collect();
    (message.body.into_owned(), message.content_type.into_owned(), headers)
}

fn of(form: Form) -> EnvelopeSettings {
    EnvelopeSettings { form, ..EnvelopeSettings::default() }
}

/// Checks that identity and context are the same in every form, and that nothing forged is passed
/// on.
fn carries_identity(headers: &[(String, String)]) {
    for (name, value) in [
        ("postrider-event-id", held_event(7).event_id.as_str()),
        ("postrider-event-type", "OrderPlaced"),
        ("postrider-aggregate-type", "order"),
        ("postrider-aggregate-id", "order-7"),
        ("postrider-content-hash", "abc"),
        ("traceparent", "00-1"),
        ("tenant", "t1"),
    ] {
        let found: Vec<_> = headers.iter().filter(|(found, _)| found == name).collect();
        assert_eq!(found, [&(name.to_owned(), value.to_owned())], "{name}");
    }
    assert!(headers.iter().all(|(_, value)| value != "forged"), "{headers:?}");
}

#[test]
fn plain_is_the_payload_as_it_is() {
    let (body, content_type, headers) = message(of(Form::Plain), &event());
    assert_eq!((body, content_type.as_str()), (event().payload, "application/json"));
    carries_identity(&headers);
    assert_eq!(headers.len(), 7);
}

#[test]
fn a_receiver_sees_that_an_operator_sent_a_copy() {
    let headers = r#"{"postrider-replay": "4", "postrider-original-event-id": "e-1",
        "postrider-else": "forged"}"#;
    let copy = Event { headers: Some(headers.to_owned()), ..event() };
    for form in [Form::Plain, Form::CloudEventsBinary, Form::CloudEventsStructured] {
        let (_, _, headers) = message(of(form), &copy);
        for (name, value) in [("postrider-replay", "4"), ("postrider-original-event-id", "e-1")] {
            assert!(headers.contains(&(name.to_owned(), value.to_owned())), "{form:?} {headers:?}");
        }
        assert!(headers.iter().all(|(_, value)| value != "forged"), "{headers:?}");
    }
}

#[test]
fn a_binary_cloud_event_has_its_attributes_in_headers() {
    let (body, content_type, headers) = message(of(Form::CloudEventsBinary), &event());
    assert_eq!((body, content_type.as_str()), (event().payload, "application/json"));
    carries_identity(&headers);
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", held_event(7).event_id.as_str()),
        ("ce_source", "/order"),
        ("ce_type", "OrderPlaced"),
        ("ce_subject", "order-7"),
        ("ce_time", "2025-06-15T15:06:40.000000Z"),
        ("ce_aggregatetype", "order"),
        ("ce_contenthash", "abc"),
        ("ce_traceparent", "00-1"),
    ] {
        assert!(headers.contains(&(name.to_owned(), value.to_owned())), "{name}: {headers:?}");
    }
}

#[test]
fn a_structured_cloud_event_is_one_json_object() {
    let number = "1.000000000000000000000000001";
    let event = Event { payload: format!("{{\"n\": {number}}}"), ..event() };
    let source = "https://shop.example.com/{aggregate_type}/{header.tenant}".to_owned();
    let settings = EnvelopeSettings { source, ..of(Form::CloudEventsStructured) };
    let (body, content_type, headers) = message(settings, &event);
    assert_eq!(content_type, "application/cloudevents+json; charset=UTF-8");
    carries_identity(&headers);
    assert!(body.contains(number), "digits are kept: {body}");
    let object: Value = serde_json::from_str(&body).unwrap();
    let mut wanted = json!({
        "specversion": "1.0",
        "id": event.event_id,
        "source": "https://shop.example.com/order/t1",
        "type": "OrderPlaced",
        "subject": "order-7",
        "time": "2025-06-15T15:06:40.000000Z",
        "aggregatetype": "order",
        "contenthash": "abc",
        "traceparent": "00-1",
        "datacontenttype": "application/json",
    });
    wanted["data"] = object["data"].clone();
    assert_eq!(object, wanted);
    assert!(object["data"]["n"].is_number());
}

#[test]
fn data_that_is_no_json_is_a_text_and_says_so() {
    let text = Event { payload: "a \"quoted\" text".to_owned(), ..event() };
    for (declared, payload, content_type, data) in [
        ("application/json", "[1]", "application/json", json!([1])),
        ("application/json; charset=utf-8", "[1]", "application/json; charset=utf-8", json!([1])),
        ("application/vnd.shop+json", "[1]", "application/vnd.shop+json", json!([1])),
        ("application/json", &text.payload, "text/plain", json!(text.payload)),
        ("text/csv", "[1]", "text/csv", json!("[1]")),
    ] {
        let settings = EnvelopeSettings {
            content_type: declared.to_owned(),
            ..of(Form::CloudEventsStructured)
        };
        let event = Event { payload: payload.to_owned(), ..event() };
        let object: Value = serde_json::from_str(&message(settings, &event).0).unwrap();
        assert_eq!(object["datacontenttype"], content_type, "{declared}");
        assert_eq!(object["data"], data, "{declared}");
    }
}

#[test]
fn a_source_is_a_uri_whatever_the_event_holds() {
    let event = Event { aggregate_type: "my order/ü".to_owned(), ..event() };
    let (_, _, headers) = message(of(Form::CloudEventsBinary), &event);
    assert!(headers.contains(&("ce_source".to_owned(), "/my%20order%2F%C3%BC".to_owned())));
}

#[test]
fn what_cannot_be_a_message_says_why() {
    for source in ["{x}", ""] {
        let settings = EnvelopeSettings { source: source.to_owned(), ..of(Form::Plain) };
        assert!(Envelope::new(&settings).unwrap_err().contains("`source`"));
    }
    let source = "/{header.shop}".to_owned();
    let lacking = EnvelopeSettings { source, ..of(Form::CloudEventsBinary) };
    let envelope = Envelope::new(&lacking).unwrap();
    for (event, word) in [
        (event(), "{header.shop}"),
        (Event { headers: Some("[1]".to_owned()), ..event() }, "JSON object"),
    ] {
        let view = EventView::new(&event);
        let error = envelope.message(&view, Cow::Borrowed(""), "ce-").unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}
