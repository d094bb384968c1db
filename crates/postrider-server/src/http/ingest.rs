//! `POST /api/v1/outboxes/{name}/events`: append one event, or a list of them as a whole.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use postrider::{AppendError, Appended, NewEvent, StoreError};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::ServerState;
use super::problem::Problem;
use crate::config::parse_time;

/// Events per request.
const EVENTS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Incoming {
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    /// Any JSON value, kept as it was written.
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    /// Or a text that is not JSON.
    payload_text: Option<String>,
    request_id: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    max_retries: Option<i32>,
    deliver_after: Option<String>,
    expires_after: Option<String>,
}

/// `null` is a payload like any other; an option alone would take it for absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Debug, Serialize)]
struct Answer {
    id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<String>,
    duplicate: bool,
}

pub(super) async fn append(
    State(state): State<ServerState>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let Some(outbox) = state.outboxes.iter().find(|outbox| outbox.name() == name) else {
        let names: Vec<&str> = state.outboxes.iter().map(|outbox| outbox.name()).collect();
        let detail = format!("there is no outbox `{name}`; there is: {}", names.join(", "));
        return Err(Problem::new(404, detail));
    };
    let limit = state.body_bytes_max;
    let body = axum::body::to_bytes(body, limit)
        .await
        .map_err(|_| Problem::new(413, format!("the body is larger than {limit} bytes")))?;
    let (incoming, many) = parse(&body)?;
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
    let mut answers: Vec<Answer> = appended.into_iter().map(answer).collect();
    Ok(match many {
        true => (status, Json(answers)).into_response(),
        false => (status, Json(answers.pop())).into_response(),
    })
}

/// One object, or a list of them.
fn parse(body: &[u8]) -> Result<(Vec<Incoming>, bool), Problem> {
    let many = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let parsed = match many {
        true => serde_json::from_slice::<Vec<Incoming>>(body),
        false => serde_json::from_slice::<Incoming>(body).map(|one| vec![one]),
    };
    let events = parsed.map_err(|error| match error.is_data() {
        true => Problem::new(422, format!("the body is no event: {error}")),
        false => Problem::new(400, format!("the body is not valid JSON: {error}")),
    })?;
    match events.len() {
        1..=EVENTS_MAX => Ok((events, many)),
        n => Err(Problem::new(422, format!("{n} events; allowed is 1 to {EVENTS_MAX}"))),
    }
}

fn event(incoming: Incoming) -> Result<NewEvent, String> {
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

fn answer(appended: Appended) -> Answer {
    match appended {
        Appended::New { id, event_id } => Answer { id, event_id: Some(event_id), duplicate: false },
        Appended::Duplicate { id } => Answer { id, event_id: None, duplicate: true },
    }
}

/// Nothing was appended; a repeat with the same request id is safe in any case.
fn refused(error: AppendError) -> Problem {
    match error {
        AppendError::Invalid(error) => Problem::new(422, error.to_string()),
        AppendError::Database(error) => {
            tracing::error!(%error, "append failed");
            let error = StoreError::from(error);
            match error.is_transient() {
                true => Problem::new(503, "the database does not take the event now; try again"),
                false => Problem::new(500, "the database refused the event; the log says why"),
            }
        }
    }
}
