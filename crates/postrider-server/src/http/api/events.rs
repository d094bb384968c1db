//! Live and archived events.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider_store::{Attempt, EventFilter, EventRecord, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::dead_letters::DeadLetterRow;
use super::pages::{Count, Rows, count_limit, page};
use crate::http::ServerState;
use crate::http::extract::{InPath, InQuery, ascii, text, time};
use crate::http::problem::Problem;

/// State of an event; `COMPLETED` ones are in the archive.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum EventStatus {
    Pending,
    Processing,
    Completed,
    Failed,
    DeadLetter,
}

impl From<EventStatus> for Status {
    fn from(status: EventStatus) -> Self {
        match status {
            EventStatus::Pending => Self::Pending,
            EventStatus::Processing => Self::Processing,
            EventStatus::Completed => Self::Completed,
            EventStatus::Failed => Self::Failed,
            EventStatus::DeadLetter => Self::DeadLetter,
        }
    }
}

impl From<Status> for EventStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Processing => Self::Processing,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::DeadLetter => Self::DeadLetter,
        }
    }
}

/// Which events. What is absent is not looked at.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventFilterBody {
    pub(super) event_type: Option<String>,
    pub(super) aggregate_type: Option<String>,
    pub(super) aggregate_id: Option<String>,
    pub(super) event_id: Option<String>,
    pub(super) request_id: Option<String>,
    /// Appended at or after.
    pub(super) created_since: Option<DateTime<Utc>>,
    /// Appended before.
    pub(super) created_until: Option<DateTime<Utc>>,
    /// Delivered at or after.
    pub(super) delivered_since: Option<DateTime<Utc>>,
    /// Delivered before.
    pub(super) delivered_until: Option<DateTime<Utc>>,
    /// Copies of an earlier replay instead of the events themselves.
    pub(super) replayed: Option<bool>,
}

impl EventFilterBody {
    pub(super) fn checked(self) -> Result<EventFilter, Problem> {
        Ok(EventFilter {
            status: None,
            event_type: text("event_type", self.event_type)?,
            aggregate_type: text("aggregate_type", self.aggregate_type)?,
            aggregate_id: text("aggregate_id", self.aggregate_id)?,
            event_id: ascii("event_id", self.event_id)?,
            request_id: text("request_id", self.request_id)?,
            error: None,
            created_since: time("created_since", self.created_since)?,
            created_until: time("created_until", self.created_until)?,
            delivered_since: time("delivered_since", self.delivered_since)?,
            delivered_until: time("delivered_until", self.delivered_until)?,
            replayed: self.replayed,
        })
    }
}

/// A query with the filter's fields and the additional fields of a list. Serde cannot flatten a
/// struct and refuse unknown fields at the same time.
macro_rules! event_query {
    ($(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default, Deserialize, IntoParams)]
        #[serde(default, deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub(super) struct $name {
            /// Only this state; `COMPLETED` searches the archive.
            #[param(inline)]
            status: Option<EventStatus>,
            /// Only this event type.
            event_type: Option<String>,
            /// Only this aggregate type.
            aggregate_type: Option<String>,
            /// Only this aggregate.
            aggregate_id: Option<String>,
            /// Only this identity.
            event_id: Option<String>,
            /// Only this request id.
            request_id: Option<String>,
            /// Only with a last error that contains this text.
            error: Option<String>,
            /// Appended at or after.
            created_since: Option<DateTime<Utc>>,
            /// Appended before.
            created_until: Option<DateTime<Utc>>,
            /// Archived events: delivered at or after.
            delivered_since: Option<DateTime<Utc>>,
            /// Archived events: delivered before.
            delivered_until: Option<DateTime<Utc>>,
            /// Only copies that a replay made, or only others.
            replayed: Option<bool>,
            $($(#[$attribute])* $field: $type,)*
        }

        impl $name {
            fn filter(self) -> Result<EventFilter, Problem> {
                let (status, error) = (self.status.map(Status::from), text("error", self.error)?);
                let filter = EventFilterBody {
                    event_type: self.event_type,
                    aggregate_type: self.aggregate_type,
                    aggregate_id: self.aggregate_id,
                    event_id: self.event_id,
                    request_id: self.request_id,
                    created_since: self.created_since,
                    created_until: self.created_until,
                    delivered_since: self.delivered_since,
                    delivered_until: self.delivered_until,
                    replayed: self.replayed,
                };
                Ok(EventFilter { status, error, ..filter.checked()? })
            }
        }
    };
}

event_query!(
    /// One page of events.
    EventPage {
        /// Only ids below this: `next` of the page before.
        before: Option<i64>,
        /// Rows at most; 50 if absent.
        #[param(minimum = 1, maximum = 500)]
        limit: Option<u32>,
    }
);
event_query!(
    /// All events that fit.
    EventSelection {}
);

/// An event in a list; the payload is shown with the event alone.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventRow {
    id: i64,
    event_id: String,
    request_id: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    status: EventStatus,
    retry_count: i32,
    /// Times it was sent again from the dead letters.
    redrive_count: i32,
    /// Due at; absent is at once.
    next_retry_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    /// The relay that works on it.
    locked_by: Option<String>,
    locked_at: Option<DateTime<Utc>>,
    last_error: Option<String>,
    payload_bytes: i64,
    created_at: DateTime<Utc>,
    delivered_at: Option<DateTime<Utc>>,
}

impl From<EventRecord> for EventRow {
    fn from(event: EventRecord) -> Self {
        Self {
            id: event.id,
            event_id: event.event_id,
            request_id: event.request_id,
            aggregate_type: event.aggregate_type,
            aggregate_id: event.aggregate_id,
            event_type: event.event_type,
            status: event.status.into(),
            retry_count: event.retry_count,
            redrive_count: event.redrive_count,
            next_retry_at: event.next_retry_at,
            expires_at: event.expires_at,
            locked_by: event.locked_by,
            locked_at: event.locked_at,
            last_error: event.last_error,
            payload_bytes: event.payload_bytes,
            created_at: event.created_at,
            delivered_at: event.delivered_at,
        }
    }
}

/// Whether the content is what was appended.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum HashVerdict {
    /// It has no hash.
    None,
    Verified,
    Mismatch,
}

/// What an event carries.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Content {
    /// The body, as it is stored.
    payload: String,
    /// A JSON object; a text where the producer stored something else.
    headers: Value,
    content_hash: Option<String>,
    hash: HashVerdict,
}

impl Content {
    pub(super) fn new(
        request_id: Option<&str>,
        event_type: &str,
        payload: String,
        headers: Option<String>,
        content_hash: Option<String>,
    ) -> Self {
        let hash = match &content_hash {
            None => HashVerdict::None,
            Some(hash) => {
                let computed = postrider::content_hash(request_id, event_type, &payload);
                match computed.eq_ignore_ascii_case(hash) {
                    true => HashVerdict::Verified,
                    false => HashVerdict::Mismatch,
                }
            }
        };
        let headers = headers
            .map_or(Value::Null, |text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
        Self { payload, headers, content_hash, hash }
    }
}

/// A failed attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptRow {
    /// From 1.
    attempt: i32,
    failed_at: DateTime<Utc>,
    error: String,
    took_ms: i64,
    relay_id: String,
}

impl From<Attempt> for AttemptRow {
    fn from(attempt: Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            failed_at: attempt.failed_at,
            error: attempt.error,
            took_ms: attempt.took_ms,
            relay_id: attempt.relay_id,
        }
    }
}

/// An event with all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventStory {
    event: EventRow,
    content: Content,
    /// What the destination answered; only archived events of sinks that keep it, such as gateways.
    response: Option<String>,
    /// Failed attempts, oldest first; the last 20 are kept.
    attempts: Vec<AttemptRow>,
}

/// Live events, or archived ones with `status=COMPLETED`; newest first.
#[utoipa::path(
    operation_id = "list_events",
    get, path = "/api/v1/outboxes/{outbox}/events", tag = "events",
    params(("outbox" = String, Path, description = "Name of the outbox"), EventPage),
    responses((status = 200, description = "A page", body = Rows<EventRow>))
)]
pub(super) async fn list(
    State(state): State<ServerState>,
    InPath(outbox): InPath<String>,
    InQuery(query): InQuery<EventPage>,
) -> Result<Json<Rows<EventRow>>, Problem> {
    let outbox = &state.served(&outbox)?.outbox;
    let page = page(&state, query.before, query.limit)?;
    let listed = state.store.events(outbox, &query.filter()?, page).await?;
    Ok(Json(Rows::of(listed, EventRow::from)))
}

/// How many events fit, as far as there is time to count.
#[utoipa::path(
    operation_id = "count_events",
    get, path = "/api/v1/outboxes/{outbox}/events/count", tag = "events",
    params(("outbox" = String, Path, description = "Name of the outbox"), EventSelection),
    responses((status = 200, description = "The count", body = Count))
)]
pub(super) async fn count(
    State(state): State<ServerState>,
    InPath(outbox): InPath<String>,
    InQuery(query): InQuery<EventSelection>,
) -> Result<Json<Count>, Problem> {
    let outbox = &state.served(&outbox)?.outbox;
    let counted = state.store.event_count(outbox, &query.filter()?, count_limit(&state)).await?;
    Ok(Json(counted.into()))
}

/// One event, live or archived, with its failed attempts.
#[utoipa::path(
    operation_id = "show_event",
    get, path = "/api/v1/outboxes/{outbox}/events/{id}", tag = "events",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Row id"),
    ),
    responses((status = 200, description = "The event", body = EventStory))
)]
pub(super) async fn show(
    State(state): State<ServerState>,
    InPath((name, id)): InPath<(String, i64)>,
) -> Result<Json<EventStory>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let Some(event) = state.store.event(outbox, id).await? else {
        let detail = format!(
            "outbox `{name}` has no live or archived event {id}; it may be deleted after delivery, \
             or in the dead letters"
        );
        return Err(Problem::new(404, detail));
    };
    let attempts = state.store.attempts(outbox, &event.event_id).await?;
    Ok(Json(story(event, attempts)))
}

fn story(mut event: EventRecord, attempts: Vec<Attempt>) -> EventStory {
    let (headers, hash) = (event.headers.take(), event.content_hash.take());
    let (request_id, payload) =
        (event.request_id.clone(), event.payload.take().unwrap_or_default());
    let content = Content::new(request_id.as_deref(), &event.event_type, payload, headers, hash);
    let attempts = attempts.into_iter().map(AttemptRow::from).collect();
    let response = event.response.take();
    EventStory { event: event.into(), content, response, attempts }
}

/// Everything that has one identity.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IdentityStory {
    /// Live first, then archived.
    events: Vec<EventRow>,
    dead_letters: Vec<DeadLetterRow>,
    /// Failed attempts, oldest first.
    attempts: Vec<AttemptRow>,
    /// `false`: there was no time to look at all live and archived events.
    complete: bool,
}

/// What has this identity: live, archived and dead.
#[utoipa::path(
    operation_id = "find_event",
    get, path = "/api/v1/outboxes/{outbox}/identities/{event_id}", tag = "events",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("event_id" = String, Path, description = "Identity of the event"),
    ),
    responses((status = 200, description = "What was found, if anything", body = IdentityStory))
)]
pub(super) async fn by_identity(
    State(state): State<ServerState>,
    InPath((name, event_id)): InPath<(String, String)>,
) -> Result<Json<IdentityStory>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let event_id = ascii("event_id", Some(event_id))?.unwrap_or_default();
    // Live and archived events are searched one after the other, each with half of the time.
    let budget = state.list_budget / 2;
    let found = state.store.event_by_identity(outbox, &event_id, budget).await?;
    let attempts = state.store.attempts(outbox, &event_id).await?;
    Ok(Json(IdentityStory {
        events: found.events.into_iter().map(EventRow::from).collect(),
        dead_letters: found.dead_letters.into_iter().map(DeadLetterRow::from).collect(),
        attempts: attempts.into_iter().map(AttemptRow::from).collect(),
        complete: found.complete,
    }))
}
