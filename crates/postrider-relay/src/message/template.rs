//! Templates of destinations: `orders/{aggregate_id}`. They only insert fields of the event, so
//! that filling one costs a copy. Anything more complex is a body.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::view::EventView;

/// Fields that a template may use, for error messages.
const FIELDS: &str = "{id}, {event_id}, {event_type}, {aggregate_type}, {aggregate_id}, \
                      {request_id}, {header.NAME}, {payload.FIELD}";

/// Text with fields of the event in it. `{{` and `}}` stand for braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(Field),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Field {
    Id,
    EventId,
    EventType,
    AggregateType,
    AggregateId,
    RequestId,
    Header(String),
    Payload(Vec<String>),
}

/// How a value is encoded for the text around it.
pub type Encode = for<'v> fn(&'v str) -> Cow<'v, str>;

/// Writes the value unchanged.
pub fn verbatim(value: &str) -> Cow<'_, str> {
    Cow::Borrowed(value)
}

/// Percent-encodes the value, so that it cannot change the structure of a URL.
pub fn percent_encoded(value: &str) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~*".contains(&byte);
    if value.bytes().all(plain) {
        return Cow::Borrowed(value);
    }
    let encoded: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
    Cow::Owned(encoded.replace('+', "%20"))
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Shows where the error is and which fields are allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let brace = &rest[at..];
            if brace.starts_with("{{") || brace.starts_with("}}") {
                plain.push_str(&brace[..1]);
                rest = &brace[2..];
                continue;
            }
            let end = brace.find('}').filter(|_| brace.starts_with('{'));
            let field = end.and_then(|end| Field::named(&brace[1..end]));
            let (Some(end), Some(field)) = (end, field) else {
                // Shows no more of the text than that: a URL may contain secrets.
                let shown = &brace[..end.map_or(1, |end| end + 1)];
                return Err(format!(
                    "`{shown}` is not a field; allowed are {FIELDS}, and {{{{ and }}}} for braces"
                ));
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Field(field));
            rest = &brace[end + 1..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns the template as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the whole text, if it has no fields.
    pub fn fixed(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text with `stand_in` in place of each field, to inspect the text around them.
    pub fn outline(&self, stand_in: &str) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(_) => stand_in.to_owned(),
        };
        self.parts.iter().map(part).collect()
    }

    /// Fills in the fields of an event.
    ///
    /// # Errors
    /// Names the field that the event does not have.
    pub fn fill<'a>(
        &'a self,
        view: &EventView<'a>,
        encode: Encode,
    ) -> Result<Cow<'a, str>, String> {
        self.fill_with(view, encode, |_| None)
    }

    /// Fills in the fields of an event, except those that differ in each event (`{aggregate_id}`
    /// and the other ids stay as they are written): one name for all events that fail together.
    ///
    /// # Errors
    /// Names the field that the event does not have.
    pub fn fill_kind<'a>(&'a self, view: &EventView<'a>) -> Result<Cow<'a, str>, String> {
        self.fill_with(view, verbatim, Field::placeholder)
    }

    fn fill_with<'a>(
        &'a self,
        view: &EventView<'a>,
        encode: Encode,
        stand_in: fn(&Field) -> Option<&'static str>,
    ) -> Result<Cow<'a, str>, String> {
        if let Some(fixed) = self.fixed() {
            return Ok(Cow::Borrowed(fixed));
        }
        // `topic = "{aggregate_type}"` is the usual case and copies nothing.
        if let [Part::Field(field)] = self.parts.as_slice()
            && stand_in(field).is_none()
            && let Some(value) = field.of_event(view)
            && let Cow::Borrowed(value) = encode(value)
        {
            return Ok(Cow::Borrowed(value));
        }
        let mut filled = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(field) => match stand_in(field) {
                    Some(text) => filled.push_str(text),
                    None => filled.push_str(&encode(&field.value(view)?)),
                },
            }
        }
        Ok(Cow::Owned(filled))
    }
}

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "event_id" => Self::EventId,
            "event_type" => Self::EventType,
            "aggregate_type" => Self::AggregateType,
            "aggregate_id" => Self::AggregateId,
            "request_id" => Self::RequestId,
            _ => match name.split_once('.')? {
                (_, "") => return None,
                ("header", name) => Self::Header(name.to_owned()),
                ("payload", path) => Self::Payload(path.split('.').map(str::to_owned).collect()),
                _ => return None,
            },
        })
    }

    /// Returns the field as it is written in the template, if its values are as many as there are
    /// events.
    fn placeholder(&self) -> Option<&'static str> {
        match self {
            Self::Id => Some("{id}"),
            Self::EventId => Some("{event_id}"),
            Self::AggregateId => Some("{aggregate_id}"),
            Self::RequestId => Some("{request_id}"),
            Self::EventType | Self::AggregateType | Self::Header(_) | Self::Payload(_) => None,
        }
    }

    fn value<'v>(&self, view: &'v EventView<'_>) -> Result<Cow<'v, str>, String> {
        if let Some(value) = self.of_event(view) {
            return Ok(Cow::Borrowed(value));
        }
        let lacks = |name: &str| Err(format!("{{{name}}}: the event has no such field"));
        match self {
            Self::Id => Ok(Cow::Owned(view.event.id.to_string())),
            Self::Header(name) => match view.header(name)? {
                Some(value) => Ok(Cow::Borrowed(value)),
                None => lacks(&format!("header.{name}")),
            },
            Self::Payload(path) => {
                let name = format!("payload.{}", path.join("."));
                let wrong = |why: &str| format!("{{{name}}}: {why}");
                let payload = view.payload().map_err(|why| wrong(&why))?;
                let payload = payload.ok_or_else(|| wrong("the payload is not JSON"))?;
                match path.iter().try_fold(payload, |value, key| child(value, key)) {
                    None | Some(Value::Null) => lacks(&name),
                    Some(Value::String(text)) => Ok(Cow::Borrowed(text)),
                    Some(Value::Array(_) | Value::Object(_)) => {
                        Err(format!("{{{name}}} is a list or an object in this event"))
                    }
                    Some(scalar) => Ok(Cow::Owned(scalar.to_string())),
                }
            }
            // Of the text columns, only this one may be absent.
            _ => lacks("request_id"),
        }
    }

    /// Returns the value, if the field is a text column.
    fn of_event<'a>(&self, view: &EventView<'a>) -> Option<&'a str> {
        let event = view.event;
        match self {
            Self::EventId => Some(&event.event_id),
            Self::EventType => Some(&event.event_type),
            Self::AggregateType => Some(&event.aggregate_type),
            Self::AggregateId => Some(&event.aggregate_id),
            Self::RequestId => event.request_id.as_deref(),
            Self::Id | Self::Header(_) | Self::Payload(_) => None,
        }
    }
}

/// Returns a member of an object, or an element of a list by its index.
fn child<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(key),
        Value::Array(elements) => elements.get(key.parse::<usize>().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::fuzz;

    /// Generates texts with existing fields, unknown fields, and single braces.
    fn templates() -> impl Strategy<Value = String> {
        let fields = [
            "{id}",
            "{event_id}",
            "{aggregate_id}",
            "{request_id}",
            "{header.a}",
            "{payload.a}",
            "{payload.a.b.0}",
            "{payload.}",
            "{secret}",
            "{{",
            "}}",
            "{",
            "}",
            "{}",
        ];
        let part = prop_oneof![select(fields.to_vec()).prop_map(str::to_owned), fuzz::text()];
        vec(part, 0..5).prop_map(|parts| parts.concat())
    }

    proptest! {
        /// A template is refused, or filled with the event's values between its own text. A value
        /// cannot change the structure of a URL.
        #[test]
        fn fuzz_templates(text in templates(), event in fuzz::event()) {
            let template = match Template::parse(&text) {
                Ok(template) => template,
                Err(error) => {
                    prop_assert!(error.starts_with('`'), "{}", error);
                    return Ok(());
                }
            };
            prop_assert_eq!(template.text(), &text);
            let view = EventView::new(&event);
            let Ok(filled) = template.fill(&view, percent_encoded) else { return Ok(()) };
            let mut rest = filled.as_ref();
            for part in &template.parts {
                let written = match part {
                    Part::Text(text) => text.clone(),
                    Part::Field(field) => {
                        let value = field.value(&view).unwrap();
                        let encoded = percent_encoded(&value).into_owned();
                        prop_assert_eq!(fuzz::percent_decoded(&encoded), value.as_bytes());
                        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~*%".contains(c);
                        prop_assert!(encoded.chars().all(is_plain), "{}", encoded);
                        encoded
                    }
                };
                prop_assert!(rest.starts_with(&written), "{} in {}", written, filled);
                rest = &rest[written.len()..];
            }
            prop_assert_eq!(rest, "");
        }

        /// Any text can be written as a template that is just that text.
        #[test]
        fn fuzz_templates_of_plain_text(text in fuzz::text()) {
            let written = text.replace('{', "{{").replace('}', "}}");
            let template = Template::parse(&written).unwrap();
            prop_assert_eq!(template.fixed(), Some(text.as_str()));
        }
    }
}
