//! Meanings of the columns of an adopted table and of its dead-letter table.

use std::fmt;

use serde::Deserialize;

/// The meaning of a column of an adopted table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The primary key: an integer, or a UUID, which then is the event id.
    Id,
    /// First half of the ordering key.
    AggregateType,
    /// Second half of the ordering key.
    AggregateId,
    /// Type of the event.
    EventType,
    /// The body.
    Payload,
    /// Headers, a JSON object as JSON or text.
    Headers,
    /// The key that detects repeats; must be unique in the adopted table.
    RequestId,
    /// The hash that is verified before delivery.
    ContentHash,
    /// The state, with the words of [`StateWords`](super::StateWords).
    Status,
    /// Whether it was delivered, for tables without a state.
    Processed,
    /// Number of failed attempts.
    RetryCount,
    /// Attempts allowed for this event.
    MaxRetries,
    /// When it is due.
    NextRetryAt,
    /// Error of the last attempt.
    LastError,
    /// The relay that works on it.
    LockedBy,
    /// When the relay claimed it.
    LockedAt,
    /// Incremented with each change.
    Version,
    /// When it was inserted.
    CreatedAt,
    /// When it was changed.
    UpdatedAt,
    /// When it was delivered.
    DeliveredAt,
    /// The destination's answer.
    Response,
}

/// The meaning of a column of an adopted dead-letter table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterField {
    /// The primary key, an integer assigned by the database.
    Id,
    /// Id of the row in the adopted table.
    OriginalId,
    /// First half of the ordering key.
    AggregateType,
    /// Second half of the ordering key.
    AggregateId,
    /// Type of the event.
    EventType,
    /// The body.
    Payload,
    /// Headers.
    Headers,
    /// The key that detects repeats.
    RequestId,
    /// Reason why it was given up: exhausted, rejected, integrity, no_route, expired or crash.
    Reason,
    /// Error of the last attempt.
    ErrorMessage,
    /// Details of the error.
    ErrorDetail,
    /// Number of failed attempts.
    RetryCount,
    /// When it was given up.
    FailedAt,
    /// Whether it is resolved.
    Resolved,
    /// When it was resolved.
    ResolvedAt,
    /// Who resolved it.
    ResolvedBy,
    /// The operator's note about it.
    ResolutionNote,
    /// When the row was inserted.
    CreatedAt,
    /// When the row was changed.
    UpdatedAt,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "id",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::EventType => "event_type",
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::RequestId => "request_id",
            Self::ContentHash => "content_hash",
            Self::Status => "status",
            Self::Processed => "processed",
            Self::RetryCount => "retry_count",
            Self::MaxRetries => "max_retries",
            Self::NextRetryAt => "next_retry_at",
            Self::LastError => "last_error",
            Self::LockedBy => "locked_by",
            Self::LockedAt => "locked_at",
            Self::Version => "version",
            Self::CreatedAt => "created_at",
            Self::UpdatedAt => "updated_at",
            Self::DeliveredAt => "delivered_at",
            Self::Response => "response",
        })
    }
}

impl fmt::Display for LetterField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "id",
            Self::OriginalId => "original_id",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::EventType => "event_type",
            Self::Payload => "payload",
            Self::Headers => "headers",
            Self::RequestId => "request_id",
            Self::Reason => "reason",
            Self::ErrorMessage => "error_message",
            Self::ErrorDetail => "error_detail",
            Self::RetryCount => "retry_count",
            Self::FailedAt => "failed_at",
            Self::Resolved => "resolved",
            Self::ResolvedAt => "resolved_at",
            Self::ResolvedBy => "resolved_by",
            Self::ResolutionNote => "resolution_note",
            Self::CreatedAt => "created_at",
            Self::UpdatedAt => "updated_at",
        })
    }
}
