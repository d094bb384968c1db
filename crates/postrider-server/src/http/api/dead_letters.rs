//! Dead letters: list, count, group and show them.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use postrider::Outbox;
use postrider_store::{DeadLetter, DeadLetterGroup, DeadReason, DlqFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::events::{AttemptRow, Content};
use super::pages::{Count, Rows, count_limit, page};
use crate::http::ServerState;
use crate::http::extract::{InPath, InQuery, ascii, text, time};
use crate::http::problem::Problem;

/// Why an event was given up.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// No attempts left.
    Exhausted,
    /// The destination will never take it.
    Rejected,
    /// The content does not fit its hash.
    Integrity,
    /// Nothing is configured to take it.
    NoRoute,
    /// Older than it may be.
    Expired,
    /// It killed the relay, alone in flight.
    Crash,
}

impl From<Reason> for DeadReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Exhausted => Self::Exhausted,
            Reason::Rejected => Self::Rejected,
            Reason::Integrity => Self::Integrity,
            Reason::NoRoute => Self::NoRoute,
            Reason::Expired => Self::Expired,
            Reason::Crash => Self::Crash,
        }
    }
}

impl From<DeadReason> for Reason {
    fn from(reason: DeadReason) -> Self {
        match reason {
            DeadReason::Exhausted => Self::Exhausted,
            DeadReason::Rejected => Self::Rejected,
            DeadReason::Integrity => Self::Integrity,
            DeadReason::NoRoute => Self::NoRoute,
            DeadReason::Expired => Self::Expired,
            DeadReason::Crash => Self::Crash,
        }
    }
}

/// Which dead letters. What is absent is not looked at.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DeadLetterFilterBody {
    event_id: Option<String>,
    /// Errors of the same kind share it.
    fingerprint: Option<String>,
    event_type: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    /// A text that the error contains.
    error: Option<String>,
    reason: Option<Reason>,
    /// Given up at or after.
    since: Option<DateTime<Utc>>,
    /// Given up before.
    until: Option<DateTime<Utc>>,
}

impl DeadLetterFilterBody {
    pub(super) fn checked(self) -> Result<DlqFilter, Problem> {
        Ok(DlqFilter {
            event_id: ascii("event_id", self.event_id)?,
            fingerprint: ascii("fingerprint", self.fingerprint)?,
            event_type: text("event_type", self.event_type)?,
            aggregate_type: text("aggregate_type", self.aggregate_type)?,
            aggregate_id: text("aggregate_id", self.aggregate_id)?,
            error: text("error", self.error)?,
            reason: self.reason.map(DeadReason::from),
            resolved: None,
            since: time("since", self.since)?,
            until: time("until", self.until)?,
        })
    }
}

/// A query with the filter's fields and the additional fields of a list. Serde cannot flatten a
/// struct and refuse unknown fields at the same time.
macro_rules! dead_letter_query {
    ($(#[$about:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Default, Deserialize, IntoParams)]
        #[serde(default, deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub(super) struct $name {
            /// Only this identity.
            event_id: Option<String>,
            /// Only errors of this kind.
            fingerprint: Option<String>,
            /// Only this event type.
            event_type: Option<String>,
            /// Only this aggregate type.
            aggregate_type: Option<String>,
            /// Only this aggregate.
            aggregate_id: Option<String>,
            /// Only errors that contain this text.
            error: Option<String>,
            /// Only this reason.
            #[param(inline)]
            reason: Option<Reason>,
            /// Only resolved, or only unresolved.
            resolved: Option<bool>,
            /// Given up at or after.
            since: Option<DateTime<Utc>>,
            /// Given up before.
            until: Option<DateTime<Utc>>,
            $($(#[$attribute])* $field: $type,)*
        }

        impl $name {
            pub(super) fn filter(self) -> Result<DlqFilter, Problem> {
                let resolved = self.resolved;
                let filter = DeadLetterFilterBody {
                    event_id: self.event_id,
                    fingerprint: self.fingerprint,
                    event_type: self.event_type,
                    aggregate_type: self.aggregate_type,
                    aggregate_id: self.aggregate_id,
                    error: self.error,
                    reason: self.reason,
                    since: self.since,
                    until: self.until,
                };
                Ok(DlqFilter { resolved, ..filter.checked()? })
            }
        }
    };
}

dead_letter_query!(
    /// One page of dead letters.
    DeadLetterPage {
        /// Only ids below this: `next` of the page before.
        before: Option<i64>,
        /// Rows at most; 50 if absent.
        #[param(minimum = 1, maximum = 500)]
        limit: Option<u32>,
    }
);
dead_letter_query!(
    /// All dead letters that fit.
    DeadLetterSelection {}
);

/// A dead letter in a list; the payload is shown with the dead letter alone.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadLetterRow {
    id: i64,
    /// Row id that the event had in the outbox.
    original_id: i64,
    event_id: String,
    request_id: Option<String>,
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    reason: Reason,
    error_message: String,
    error_detail: Option<String>,
    fingerprint: String,
    failed_at: DateTime<Utc>,
    retry_count: i32,
    /// Attempts the event asked for; absent: as many as its outbox allows.
    max_retries: Option<i32>,
    redrive_count: i32,
    payload_bytes: i64,
    event_created_at: DateTime<Utc>,
    /// After this the event was not to be delivered. A retry drops it where it has passed.
    expires_at: Option<DateTime<Utc>>,
    resolved: bool,
    resolved_at: Option<DateTime<Utc>>,
    resolved_by: Option<String>,
    resolution_note: Option<String>,
    /// Row id of the fresh event, where it was sent again.
    retried_as: Option<i64>,
}

impl From<DeadLetter> for DeadLetterRow {
    fn from(letter: DeadLetter) -> Self {
        Self {
            id: letter.id,
            original_id: letter.original_id,
            event_id: letter.event_id,
            request_id: letter.request_id,
            aggregate_type: letter.aggregate_type,
            aggregate_id: letter.aggregate_id,
            event_type: letter.event_type,
            reason: letter.reason.into(),
            error_message: letter.error_message,
            error_detail: letter.error_detail,
            fingerprint: letter.fingerprint,
            failed_at: letter.failed_at,
            retry_count: letter.retry_count,
            max_retries: letter.max_retries,
            redrive_count: letter.redrive_count,
            payload_bytes: letter.payload_bytes,
            event_created_at: letter.event_created_at,
            expires_at: letter.expires_at,
            resolved: letter.resolved,
            resolved_at: letter.resolved_at,
            resolved_by: letter.resolved_by,
            resolution_note: letter.resolution_note,
            retried_as: letter.retried_as,
        }
    }
}

/// A dead letter with all that is known of it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadLetterStory {
    dead_letter: DeadLetterRow,
    content: Content,
    /// Failed attempts, oldest first; the last 20 are kept.
    attempts: Vec<AttemptRow>,
}

/// Dead letters, newest first.
#[utoipa::path(
    operation_id = "list_dead_letters",
    get, path = "/api/v1/outboxes/{outbox}/dead-letters", tag = "dead letters",
    params(("outbox" = String, Path, description = "Name of the outbox"), DeadLetterPage),
    responses((status = 200, description = "A page", body = Rows<DeadLetterRow>))
)]
pub(super) async fn list(
    State(state): State<ServerState>,
    InPath(outbox): InPath<String>,
    InQuery(query): InQuery<DeadLetterPage>,
) -> Result<Json<Rows<DeadLetterRow>>, Problem> {
    let outbox = &state.served(&outbox)?.outbox;
    let page = page(&state, query.before, query.limit)?;
    let listed = state.store.dead_letters(outbox, &query.filter()?, page).await?;
    Ok(Json(Rows::of(listed, DeadLetterRow::from)))
}

/// How many dead letters fit, as far as there is time to count.
#[utoipa::path(
    operation_id = "count_dead_letters",
    get, path = "/api/v1/outboxes/{outbox}/dead-letters/count", tag = "dead letters",
    params(("outbox" = String, Path, description = "Name of the outbox"), DeadLetterSelection),
    responses((status = 200, description = "The count", body = Count))
)]
pub(super) async fn count(
    State(state): State<ServerState>,
    InPath(outbox): InPath<String>,
    InQuery(query): InQuery<DeadLetterSelection>,
) -> Result<Json<Count>, Problem> {
    let outbox = &state.served(&outbox)?.outbox;
    let limit = count_limit(&state);
    Ok(Json(state.store.dead_letter_count(outbox, &query.filter()?, limit).await?.into()))
}

/// A number of something.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TypeCount {
    event_type: String,
    count: i64,
}

/// A number within an hour.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HourCount {
    /// Start of the hour.
    hour: DateTime<Utc>,
    count: i64,
}

/// Dead letters whose errors are of the same kind.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Group {
    /// What they share; a filter takes it.
    fingerprint: String,
    reason: Reason,
    count: Count,
    /// The error of the newest one.
    sample: String,
    newest_id: i64,
    first_failed_at: DateTime<Utc>,
    last_failed_at: DateTime<Utc>,
    /// Most frequent first.
    event_types: Vec<TypeCount>,
    /// Oldest first; hours without any are absent.
    by_hour: Vec<HourCount>,
}

impl From<DeadLetterGroup> for Group {
    fn from(group: DeadLetterGroup) -> Self {
        let types = group.event_types.into_iter();
        let hours = group.by_hour.into_iter();
        Self {
            fingerprint: group.fingerprint,
            reason: group.reason.into(),
            count: group.count.into(),
            sample: group.sample,
            newest_id: group.newest_id,
            first_failed_at: group.first_failed_at,
            last_failed_at: group.last_failed_at,
            event_types: types.map(|(event_type, count)| TypeCount { event_type, count }).collect(),
            by_hour: hours.map(|(hour, count)| HourCount { hour, count }).collect(),
        }
    }
}

/// Groups of dead letters, the one with the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// `false`: counts are lower bounds, and older groups may be missing.
    complete: bool,
    /// Dead letters below this id were not looked at.
    next: Option<i64>,
}

/// Dead letters by the kind of their error.
#[utoipa::path(
    operation_id = "dead_letter_groups",
    get, path = "/api/v1/outboxes/{outbox}/dead-letters/groups", tag = "dead letters",
    params(("outbox" = String, Path, description = "Name of the outbox"), DeadLetterPage),
    responses((status = 200, description = "The groups", body = Groups))
)]
pub(super) async fn groups(
    State(state): State<ServerState>,
    InPath(outbox): InPath<String>,
    InQuery(query): InQuery<DeadLetterPage>,
) -> Result<Json<Groups>, Problem> {
    let outbox = &state.served(&outbox)?.outbox;
    let page = page(&state, query.before, query.limit)?;
    let found = state.store.dead_letter_groups(outbox, &query.filter()?, page).await?;
    Ok(Json(Groups {
        groups: found.groups.into_iter().map(Group::from).collect(),
        complete: found.complete,
        next: found.next,
    }))
}

/// One dead letter with its failed attempts.
#[utoipa::path(
    operation_id = "show_dead_letter",
    get, path = "/api/v1/outboxes/{outbox}/dead-letters/{id}", tag = "dead letters",
    params(
        ("outbox" = String, Path, description = "Name of the outbox"),
        ("id" = i64, Path, description = "Id of the dead letter"),
    ),
    responses((status = 200, description = "The dead letter", body = DeadLetterStory))
)]
pub(super) async fn show(
    State(state): State<ServerState>,
    InPath((name, id)): InPath<(String, i64)>,
) -> Result<Json<DeadLetterStory>, Problem> {
    let outbox = &state.served(&name)?.outbox;
    let Some(mut letter) = state.store.dead_letter(outbox, id).await? else {
        return Err(unknown(outbox, id));
    };
    let attempts = state.store.attempts(outbox, &letter.event_id).await?;
    let (headers, hash) = (letter.headers.take(), letter.content_hash.take());
    let (request_id, payload) =
        (letter.request_id.clone(), letter.payload.take().unwrap_or_default());
    let content = Content::new(request_id.as_deref(), &letter.event_type, payload, headers, hash);
    let attempts = attempts.into_iter().map(AttemptRow::from).collect();
    Ok(Json(DeadLetterStory { dead_letter: letter.into(), content, attempts }))
}

pub(super) fn unknown(outbox: &Outbox, id: i64) -> Problem {
    Problem::new(404, format!("outbox `{}` has no dead letter {id}", outbox.name()))
}
