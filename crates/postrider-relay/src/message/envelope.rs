//! The message of an event, independent of the sink: a body, a content type and headers.

use std::borrow::Cow;

use postrider_store::{ORIGINAL_HEADER, REPLAY_HEADER};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::message::template::{self, Template};
use crate::message::view::EventView;

/// Prefix of Postrider's own headers; an event cannot override them.
const PREFIX: &str = "postrider-";
/// Headers that operators' actions add to an event: the replay that created the copy, and the event
/// that was edited.
const MARKS: [&str; 2] = [REPLAY_HEADER, ORIGINAL_HEADER];
/// CloudEvents version of the binary and structured forms.
const SPECVERSION: &str = "1.0";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";
/// Headers of an event that are CloudEvents attributes of the same name.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// How an event is written into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The payload as it is.
    #[default]
    Plain,
    /// CloudEvents 1.0, binary mode: the payload as it is, the attributes in headers.
    CloudEventsBinary,
    /// CloudEvents 1.0, structured mode: attributes and payload in one JSON object.
    CloudEventsStructured,
}

impl Form {
    /// The names in the configuration.
    pub const NAMES: [&str; 3] = ["plain", "cloudevents-binary", "cloudevents-structured"];

    /// Returns the form with this name in the configuration.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "plain" => Self::Plain,
            "cloudevents-binary" => Self::CloudEventsBinary,
            "cloudevents-structured" => Self::CloudEventsStructured,
            _ => return None,
        })
    }
}

/// Settings of an [`Envelope`].
#[derive(Debug, Clone)]
pub struct EnvelopeSettings {
    /// How the event is written.
    pub form: Form,
    /// `source` of a CloudEvent: a template whose values are percent-encoded.
    pub source: String,
    /// Content type of the payload.
    pub content_type: String,
}

impl Default for EnvelopeSettings {
    /// Plain JSON. As a CloudEvent, an event of aggregate type `order` would have the source
    /// `/order`.
    fn default() -> Self {
        Self {
            form: Form::Plain,
            source: "/{aggregate_type}".to_owned(),
            content_type: "application/json".to_owned(),
        }
    }
}

impl EnvelopeSettings {
    /// Returns whether payloads of this content type are JSON.
    pub fn content_is_json(&self) -> bool {
        is_json(&self.content_type)
    }
}

/// Builds messages from events, in one form for all messages of a sink.
#[derive(Debug, Clone)]
pub struct Envelope {
    form: Form,
    source: Template,
    content_type: String,
}

/// A message to send. Names and values are text; each sink decides how to encode what its transport
/// cannot carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The body.
    pub body: Cow<'a, str>,
    /// Content type of the body.
    pub content_type: Cow<'a, str>,
    /// Names and values, each name once.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl Envelope {
    /// Builds an envelope from its settings.
    ///
    /// # Errors
    /// Names the invalid setting.
    pub fn new(settings: &EnvelopeSettings) -> Result<Self, String> {
        let source = Template::parse(&settings.source);
        let source = source.map_err(|error| format!("`source`: {error}"))?;
        if source.outline("x").is_empty() {
            return Err("`source` is empty; a CloudEvent must have one".to_owned());
        }
        Ok(Self { form: settings.form, source, content_type: settings.content_type.clone() })
    }

    /// Builds the message of an event, with `data` as its body: the payload, or the text that a
    /// template rendered. In binary mode, `attribute_prefix` starts the names of CloudEvents
    /// attributes: `ce-` for HTTP and NATS, `ce_` for Kafka, `cloudEvents:` for AMQP.
    ///
    /// # Errors
    /// If the event's headers are not valid, or `source` names a field that the event lacks.
    pub fn message<'a>(
        &'a self,
        view: &'a EventView<'a>,
        data: Cow<'a, str>,
        attribute_prefix: &str,
    ) -> Result<Message<'a>, String> {
        let mut headers = Vec::with_capacity(16);
        for (name, value) in view.headers()? {
            let ours = |prefix: &str| {
                let start = name.get(..prefix.len());
                start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            };
            if (!ours(PREFIX) || MARKS.contains(&name.as_str()))
                && !ours(attribute_prefix)
                && !name.eq_ignore_ascii_case("content-type")
            {
                headers.push((Cow::Borrowed(name.as_str()), Cow::Borrowed(value.as_str())));
            }
        }
        let event = view.event;
        for (name, value) in [
            ("postrider-event-id", event.event_id.as_str()),
            ("postrider-event-type", &event.event_type),
            ("postrider-aggregate-type", &event.aggregate_type),
            ("postrider-aggregate-id", &event.aggregate_id),
            ("postrider-content-hash", event.content_hash.as_deref().unwrap_or_default()),
        ] {
            if !value.is_empty() {
                headers.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            }
        }
        let content_type = Cow::Borrowed(self.content_type.as_str());
        match self.form {
            Form::Plain => Ok(Message { body: data, content_type, headers }),
            Form::CloudEventsBinary => {
                for (name, value) in self.attributes(view)? {
                    headers.push((Cow::Owned(format!("{attribute_prefix}{name}")), value));
                }
                Ok(Message { body: data, content_type, headers })
            }
            Form::CloudEventsStructured => {
                let body = Cow::Owned(self.structured(view, &data)?);
                Ok(Message { body, content_type: Cow::Borrowed(STRUCTURED), headers })
            }
        }
    }

    /// Returns the attributes of the standard, then Postrider's extensions. `datacontenttype` is
    /// not among them: each mode writes it differently.
    fn attributes<'a>(
        &'a self,
        view: &'a EventView<'a>,
    ) -> Result<Vec<(&'static str, Cow<'a, str>)>, String> {
        let event = view.event;
        let source = self.source.fill(view, template::percent_encoded);
        let source = source.map_err(|error| format!("`source`: {error}"))?;
        let time = event.created_at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let mut attributes = vec![
            ("specversion", Cow::Borrowed(SPECVERSION)),
            ("id", Cow::Borrowed(event.event_id.as_str())),
            ("source", source),
            ("type", Cow::Borrowed(&event.event_type)),
            ("subject", Cow::Borrowed(&event.aggregate_id)),
            ("time", Cow::Owned(time)),
            ("aggregatetype", Cow::Borrowed(&event.aggregate_type)),
        ];
        if let Some(hash) = &event.content_hash {
            attributes.push(("contenthash", Cow::Borrowed(hash)));
        }
        for name in TRACE_CONTEXT {
            if let Some(value) = view.header(name)? {
                attributes.push((name, Cow::Borrowed(value)));
            }
        }
        Ok(attributes)
    }

    fn structured<'a>(&'a self, view: &'a EventView<'a>, data: &str) -> Result<String, String> {
        let json = is_json(&self.content_type).then(|| serde_json::from_str::<&RawValue>(data));
        let (content_type, data) = match json {
            // The JSON is copied verbatim, so that numbers keep their digits.
            Some(Ok(json)) => (self.content_type.as_str(), Data::Json(json)),
            // Invalid JSON must not be labelled as JSON: as a JSON string it would be a different
            // payload.
            Some(Err(_)) => ("text/plain", Data::Text(data)),
            None => (self.content_type.as_str(), Data::Text(data)),
        };
        let mut object = Structured { attributes: self.attributes(view)?, data };
        object.attributes.push(("datacontenttype", Cow::Borrowed(content_type)));
        serde_json::to_string(&object).map_err(|error| format!("no CloudEvent: {error}"))
    }
}

/// Returns whether data of this content type is JSON by the rules of CloudEvents.
fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let subtype = media_type.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype.eq_ignore_ascii_case("json") || subtype.to_ascii_lowercase().ends_with("+json")
}

struct Structured<'a> {
    attributes: Vec<(&'static str, Cow<'a, str>)>,
    data: Data<'a>,
}

/// Payloads are text, so `data_base64` is never needed.
enum Data<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl Serialize for Structured<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        match self.data {
            Data::Json(json) => map.serialize_entry("data", json)?,
            Data::Text(text) => map.serialize_entry("data", text)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::Value;

    use super::*;
    use crate::fuzz;

    fn envelope(form: Form) -> Envelope {
        Envelope::new(&EnvelopeSettings { form, ..EnvelopeSettings::default() }).unwrap()
    }

    proptest! {
        /// Each header occurs once, Postrider's headers cannot be overridden, and the event's own
        /// headers are kept.
        #[test]
        fn fuzz_messages(
            event in fuzz::event(),
            prefix in select(vec!["ce-", "ce_", "cloudEvents:"]),
            form in select(vec![Form::Plain, Form::CloudEventsBinary, Form::CloudEventsStructured]),
        ) {
            let (view, envelope) = (EventView::new(&event), envelope(form));
            let data = Cow::Borrowed(event.payload.as_str());
            let Ok(message) = envelope.message(&view, data, prefix) else {
                prop_assert!(event.headers().is_err());
                return Ok(());
            };
            let names: HashSet<_> = message.headers.iter().map(|(name, _)| name).collect();
            prop_assert_eq!(names.len(), message.headers.len());
            let find = |wanted: &str| {
                let found = message.headers.iter().find(|(name, _)| name == wanted);
                found.map(|(_, value)| value.as_ref())
            };
            prop_assert_eq!(find("postrider-event-id"), Some(event.event_id.as_str()));
            prop_assert_eq!(find("postrider-event-type").unwrap_or_default(), &event.event_type);
            let own = event.headers().unwrap();
            for (name, value) in &message.headers {
                let lower = name.to_ascii_lowercase();
                let ours = lower.starts_with(PREFIX) || lower.starts_with(&prefix.to_lowercase());
                prop_assert!(ours || own.get(name.as_ref()).is_some_and(|own| own == value));
            }
            match form {
                Form::Plain => prop_assert_eq!(message.body.as_ref(), &event.payload),
                Form::CloudEventsBinary => {
                    prop_assert_eq!(message.body.as_ref(), &event.payload);
                    let attribute = |name: &str| find(&format!("{prefix}{name}"));
                    prop_assert_eq!(attribute("id"), Some(event.event_id.as_str()));
                    prop_assert_eq!(attribute("type"), Some(event.event_type.as_str()));
                }
                Form::CloudEventsStructured => is_structured(&event, &message.body)?,
            }
        }
    }

    /// Checks that attributes and payload are read back unchanged.
    fn is_structured(event: &postrider_store::Event, body: &str) -> Result<(), TestCaseError> {
        #[derive(serde::Deserialize)]
        struct Read<'a> {
            #[serde(borrow)]
            data: &'a RawValue,
            #[serde(flatten)]
            attributes: std::collections::BTreeMap<String, Value>,
        }
        let parsed: Result<Read<'_>, _> = serde_json::from_str(body);
        let read = parsed.map_err(|error| TestCaseError::fail(format!("{error}: {body}")))?;
        let attribute = |name: &str| read.attributes.get(name).and_then(Value::as_str);
        prop_assert_eq!(attribute("specversion"), Some("1.0"));
        prop_assert_eq!(attribute("id"), Some(event.event_id.as_str()));
        prop_assert_eq!(attribute("type"), Some(event.event_type.as_str()));
        prop_assert_eq!(attribute("subject"), Some(event.aggregate_id.as_str()));
        let source = attribute("source").and_then(|source| source.strip_prefix('/'));
        let source = fuzz::percent_decoded(source.unwrap_or_default());
        prop_assert_eq!(source, event.aggregate_type.as_bytes());
        match attribute("datacontenttype") {
            Some("application/json") => prop_assert_eq!(read.data.get(), event.payload.trim()),
            other => {
                prop_assert_eq!(other, Some("text/plain"));
                let text: String = serde_json::from_str(read.data.get()).unwrap_or_default();
                prop_assert_eq!(&text, &event.payload);
            }
        }
        Ok(())
    }
}
