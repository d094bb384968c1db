//! Appending: one event, or a list of them in one transaction.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use postrider::{AppendError, Appended, NewEvent};
use postrider_command::parse_time;
use postrider_store::StoreError;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::http::ServerState;
use crate::http::extract::{InPath, parse, read_body, require_type, whole_or_none};
use crate::http::problem::Problem;

/// Maximum number of events per request.
pub(super) const EVENTS_MAX: usize = 10_000;

/// An event to append.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewEventBody {
    /// First half of the ordering key.
    #[schema(min_length = 1)]
    aggregate_type: String,
    /// Second half of the ordering key.
    #[schema(min_length = 1)]
    aggregate_id: String,
    /// What happened.
    #[schema(min_length = 1)]
    event_type: String,
    /// Any JSON value, kept as it was written.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// Or a text that is not JSON.
    payload_text: Option<String>,
    /// A second event with this id is answered as a duplicate.
    #[schema(min_length = 1)]
    request_id: Option<String>,
    /// Sent along with the event.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Deliveries tried, instead of the outbox's number.
    #[serde(default, deserialize_with = "whole_or_none")]
    #[schema(minimum = 1, maximum = 1000)]
    max_retries: Option<i32>,
    /// Holds the first delivery back, such as `30s`.
    deliver_after: Option<String>,
    /// A dead letter after this time, such as `1h`.
    expires_after: Option<String>,
}

/// One event, or a list of up to 10,000 that is appended as a whole.
#[derive(ToSchema)]
#[serde(untagged)]
// Used only for the schema: the body is parsed by hand, so that errors name the event of a list.
#[allow(dead_code, reason = "a schema of the document")]
pub(super) enum OneOrMany {
    One(NewEventBody),
    Many(Vec<NewEventBody>),
}

/// Deserializes a payload. `null` is a payload like any other, which an `Option` alone would read
/// as absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// An event that was appended, or had been before.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AppendedBody {
    /// Row id; of a duplicate, the first one's.
    id: i64,
    /// Identity; absent for a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    /// An event with this request id was appended before.
    duplicate: bool,
}

/// The answer has the form of the request.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum AppendedOneOrMany {
    One(AppendedBody),
    Many(Vec<AppendedBody>),
}

/// Append one event, or a list of them as a whole.
#[utoipa::path(
    operation_id = "append_event",
    post, path = "/api/v1/outboxes/{outbox}/events", tag = "events",
    params(("outbox" = String, Path, description = "Name of the outbox")),
    request_body = OneOrMany,
    responses(
        (status = 201, description = "Appended", body = AppendedOneOrMany),
        (status = 200, description = "All of it was appended before", body = AppendedOneOrMany),
    )
)]
pub(super) async fn append(
    State(state): State<ServerState>,
    InPath(name): InPath<String>,
    request: Request,
) -> Result<Response, Problem> {
    let outbox = &state.served(&name)?.outbox;
    require_type(&request, "application/json")?;
    let body = read_body(request, state.body_bytes_max).await?;
    let (incoming, many) = parse_events(&body)?;
    let events = incoming
        .into_iter()
        .enumerate()
        .map(|(index, incoming)| {
            event(incoming).map_err(|detail| Problem::new(422, format!("event {index}: {detail}")))
        })
        .collect::<Result<Vec<NewEvent>, Problem>>()?;
    let appended = state.appender.append_all(outbox, &events).await.map_err(refused)?;
    state.waker.wake();

    let created = appended.iter().any(|answer| !answer.is_duplicate());
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let mut answers: Vec<AppendedBody> = appended.into_iter().map(answer).collect();
    let answer = match answers.pop() {
        Some(only) if !many => AppendedOneOrMany::One(only),
        last => AppendedOneOrMany::Many(answers.into_iter().chain(last).collect()),
    };
    Ok((status, Json(answer)).into_response())
}

/// Parses one object, or a list of them.
fn parse_events(body: &[u8]) -> Result<(Vec<NewEventBody>, bool), Problem> {
    let many = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if !many {
        return Ok((vec![parse(body, "the event")?], many));
    }
    let texts = serde_json::from_slice::<Vec<&RawValue>>(body);
    let texts =
        texts.map_err(|error| Problem::new(400, format!("the body is not valid JSON: {error}")))?;
    if !(1..=EVENTS_MAX).contains(&texts.len()) {
        let detail = format!("{} events; allowed is 1 to {EVENTS_MAX}", texts.len());
        return Err(Problem::new(422, detail));
    }
    let event = |(index, text): (usize, &&RawValue)| {
        parse(text.get().as_bytes(), &format!("event {index}"))
    };
    Ok((texts.iter().enumerate().map(event).collect::<Result<_, _>>()?, many))
}

fn event(incoming: NewEventBody) -> Result<NewEvent, String> {
    let payload = match (incoming.payload, incoming.payload_text) {
        (Some(json), None) => json.get().to_owned(),
        (None, Some(text)) => text,
        _ => return Err("give either `payload` (JSON) or `payload_text` (text)".to_owned()),
    };
    let mut event =
        NewEvent::new(incoming.aggregate_type, incoming.aggregate_id, incoming.event_type, payload);
    if let Some(request_id) = incoming.request_id {
        event = event.request_id(request_id);
    }
    if let Some(attempts) = incoming.max_retries {
        event = event.max_retries(attempts);
    }
    if let Some(wait) = incoming.deliver_after {
        event = event.deliver_after(parse_time(&wait)?);
    }
    if let Some(age) = incoming.expires_after {
        event = event.expires_after(parse_time(&age)?);
    }
    for (name, value) in incoming.headers {
        event = event.header(name, value);
    }
    event.validate().map_err(|error| error.to_string())?;
    Ok(event)
}

fn answer(appended: Appended) -> AppendedBody {
    match appended {
        Appended::New { id, event_id } => {
            AppendedBody { id, event_id: Some(event_id), duplicate: false }
        }
        Appended::Duplicate { id } => AppendedBody { id, event_id: None, duplicate: true },
    }
}

/// Builds the problem for a failed append. Nothing was appended; repeating the request with the
/// same request id is safe in any case.
fn refused(error: AppendError) -> Problem {
    match error {
        AppendError::Database(error) => {
            tracing::error!(%error, "append failed");
            let error = StoreError::from(error);
            match error.is_transient() {
                true => Problem::new(503, "the database does not take the event now; try again"),
                false => Problem::new(500, "the database refused the event; the log says why"),
            }
        }
        AppendError::Invalid(error) => Problem::new(422, error.to_string()),
        error => Problem::new(422, error.to_string()),
    }
}
