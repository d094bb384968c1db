//! Limits on texts in the OpenAPI document: those that the server enforces. A client that is
//! generated from the document then sends nothing that is refused.

use postrider::limits::{
    AGGREGATE_ID_CHARS_MAX, AGGREGATE_TYPE_CHARS_MAX, EVENT_TYPE_CHARS_MAX, PAYLOAD_BYTES_MAX,
    REQUEST_ID_CHARS_MAX,
};
use serde_json::json;
use utoipa::openapi::path::ParameterIn;
use utoipa::openapi::schema::{AdditionalProperties, Object, Schema};
use utoipa::openapi::{OpenApi, RefOr};

use super::append::EVENTS_MAX;
use super::operations;
use crate::http::extract::TEXT_CHARS_MAX;

/// No store can hold a NUL character.
const NO_NUL: &str = r"^[^\u0000]*$";
/// Identities and fingerprints.
const ASCII: &str = r"^[\u0001-\u007f]*$";
/// A time such as `30s`. The server also accepts other notations.
const TIME: &str = "^([0-9]{1,6}(ms|s|m)|[0-9]{1,5}h|[0-9]{1,4}d)$";
/// Bodies with filters, whose texts have the same limits as those of queries.
const FILTERS: [&str; 2] = ["EventFilterBody", "DeadLetterFilterBody"];
/// Bodies with the fields of an event.
const EVENTS: [&str; 3] = ["NewEventBody", "EditBody", "KeyBody"];

/// Adds the limits to parameters and bodies.
pub(super) fn add(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let parameters = operations(item).filter_map(|operation| operation.parameters.as_mut());
        for parameter in parameters.flatten() {
            let RefOr::T(parameter) = parameter else { continue };
            let name = parameter.name.clone();
            if parameter.parameter_in == ParameterIn::Query || name == "event_id" {
                text(parameter.schema.as_mut(), |object| filter(&name, object));
            }
        }
    }
    let Some(components) = &mut document.components else { return };
    for (name, schema) in &mut components.schemas {
        let RefOr::T(schema) = schema else { continue };
        match schema {
            Schema::Object(object) if FILTERS.contains(&name.as_str()) => {
                for (field, schema) in &mut object.properties {
                    text(Some(schema), |object| filter(field, object));
                }
            }
            Schema::Object(object) if EVENTS.contains(&name.as_str()) => {
                for (field, schema) in &mut object.properties {
                    headers(field, schema);
                    text(Some(schema), |object| part_of_event(field, object));
                }
                match name.as_str() {
                    "NewEventBody" => one_payload(object),
                    "EditBody" => some_edit(object),
                    _ => {}
                }
            }
            // As for structs: unknown fields are refused.
            Schema::OneOf(choice) if name == "WorkBody" => {
                for schema in &mut choice.items {
                    if let RefOr::T(Schema::Object(object)) = schema {
                        let none = AdditionalProperties::FreeForm(false);
                        object.additional_properties = Some(Box::new(none));
                    }
                }
            }
            Schema::OneOf(choice) if name == "OneOrMany" => {
                for schema in &mut choice.items {
                    if let RefOr::T(Schema::Array(list)) = schema {
                        (list.min_items, list.max_items) = (Some(1), Some(EVENTS_MAX));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Requires either a payload or a text: an event cannot have both, and `null` is a payload but not
/// a text. The `oneOf` is hidden in a `not`: client generators would otherwise treat it as a choice
/// of types and lose the fields.
fn one_payload(event: &mut Object) {
    let payload = json!({ "required": ["payload"] });
    let text = json!({
        "properties": { "payload_text": { "type": "string" } },
        "required": ["payload_text"],
    });
    let rules = event.extensions.get_or_insert_default();
    rules.insert("not".to_owned(), json!({ "not": { "oneOf": [payload, text] } }));
}

/// Requires that an edit sets something: at least one field is present and not `null`.
fn some_edit(edit: &mut Object) {
    let absent = json!({ "type": "null" });
    let nothing = json!({
        "aggregate_type": absent, "aggregate_id": absent, "event_type": absent,
        "payload": absent, "headers": { "maxProperties": 0 },
    });
    let rules = edit.extensions.get_or_insert_default();
    rules.insert("not".to_owned(), json!({ "properties": nothing }));
}

/// Forbids NUL characters in the names and values of headers.
fn headers(field: &str, schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    if field != "headers" {
        return;
    }
    if let Some(AdditionalProperties::RefOr(value)) = object.additional_properties.as_deref_mut() {
        text(Some(value), |value| value.pattern = Some(NO_NUL.to_owned()));
    }
    if let Some(Schema::Object(name)) = object.property_names.as_deref_mut() {
        name.pattern = Some(NO_NUL.to_owned());
    }
}

/// Changes a schema if it is a text without a format.
fn text(schema: Option<&mut RefOr<Schema>>, change: impl FnOnce(&mut Object)) {
    let Some(RefOr::T(Schema::Object(object))) = schema else { return };
    let kind = json!(object.schema_type);
    let is_text = kind == "string" || kind == json!(["string", "null"]);
    if is_text && object.format.is_none() && object.enum_values.is_none() {
        change(object);
    }
}

fn filter(name: &str, object: &mut Object) {
    object.max_length.get_or_insert(TEXT_CHARS_MAX);
    let pattern = if matches!(name, "event_id" | "fingerprint") { ASCII } else { NO_NUL };
    object.pattern.get_or_insert_with(|| pattern.to_owned());
}

fn part_of_event(name: &str, object: &mut Object) {
    let (chars_max, pattern) = match name {
        "aggregate_type" => (AGGREGATE_TYPE_CHARS_MAX, NO_NUL),
        "aggregate_id" => (AGGREGATE_ID_CHARS_MAX, NO_NUL),
        "event_type" => (EVENT_TYPE_CHARS_MAX, NO_NUL),
        "request_id" => (REQUEST_ID_CHARS_MAX, NO_NUL),
        "payload" | "payload_text" => (PAYLOAD_BYTES_MAX, NO_NUL),
        "deliver_after" | "expires_after" => (16, TIME),
        _ => (TEXT_CHARS_MAX, NO_NUL),
    };
    object.max_length.get_or_insert(chars_max);
    object.pattern.get_or_insert_with(|| pattern.to_owned());
    if matches!(name, "aggregate_type" | "aggregate_id" | "event_type") {
        object.min_length.get_or_insert(1);
    }
}
