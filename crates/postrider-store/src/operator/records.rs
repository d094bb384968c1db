//! Rows of events and dead letters, as structs.

use postrider::internal::fit;
use postrider::limits;

use super::row::Row;
use super::statement::Query;
use crate::contract::{DeadLetter, DeadReason, ImportEntry, Result, parse_stored};
use crate::{EventRecord, fingerprint};

/// Reads a row of `events` or `archived_events`.
pub(super) fn event_record(row: &Row) -> Result<EventRecord> {
    Ok(EventRecord {
        id: row.number("id")?,
        event_id: row.text("event_id")?,
        request_id: row.text_or_none("request_id")?,
        aggregate_type: row.text("aggregate_type")?,
        aggregate_id: row.text("aggregate_id")?,
        event_type: row.text("event_type")?,
        payload: row.text_or_none("payload")?,
        payload_bytes: row.number("payload_bytes")?,
        headers: row.text_or_none("headers")?,
        content_hash: row.text_or_none("content_hash")?,
        status: parse_stored("status", &row.text("status")?)?,
        retry_count: row.number("retry_count")?,
        redrive_count: row.number("redrive_count")?,
        next_retry_at: row.time_or_none("next_retry_at")?,
        expires_at: row.time_or_none("expires_at")?,
        locked_by: row.text_or_none("locked_by")?,
        locked_at: row.time_or_none("locked_at")?,
        last_error: row.text_or_none("last_error")?,
        created_at: row.time("created_at")?,
        delivered_at: row.time_or_none("delivered_at")?,
        response: row.text_or_none("response")?,
    })
}

/// Reads a row of `dlq_list`, `dlq_show` or `dlq_by_event`.
pub(super) fn dead_letter(row: &Row) -> Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.number("id")?,
        original_id: row.number("original_id")?,
        event_id: row.text("event_id")?,
        request_id: row.text_or_none("request_id")?,
        aggregate_type: row.text("aggregate_type")?,
        aggregate_id: row.text("aggregate_id")?,
        event_type: row.text("event_type")?,
        payload: row.text_or_none("payload")?,
        payload_bytes: row.number("payload_bytes")?,
        headers: row.text_or_none("headers")?,
        content_hash: row.text_or_none("content_hash")?,
        reason: DeadReason::stored(&row.text("reason")?),
        error_message: row.text("error_message")?,
        error_detail: row.text_or_none("error_detail")?,
        failed_at: row.time("failed_at")?,
        retry_count: row.number("retry_count")?,
        max_retries: row.number_or_none("max_retries")?,
        redrive_count: row.number("redrive_count")?,
        event_created_at: row.time("event_created_at")?,
        resolved: row.boolean("resolved")?,
        resolved_at: row.time_or_none("resolved_at")?,
        resolved_by: row.text_or_none("resolved_by")?,
        resolution_note: row.text_or_none("resolution_note")?,
        retried_as: row.number_or_none("retried_as")?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        fingerprint: row.text("fingerprint")?,
        expires_at: row.time_or_none("expires_at")?,
    })
}

/// Binds the parameters of `dlq_import`.
pub(super) fn bind_letter<'q>(query: Query<'q>, entry: &ImportEntry) -> Query<'q> {
    let message = fit(&entry.error_message, limits::ERROR_MESSAGE_CHARS_MAX);
    let detail = entry.error_detail.as_ref();
    let detail = detail.map(|text| fit(text, limits::ERROR_DETAIL_CHARS_MAX));
    query
        .bind("request_id", &entry.request_id)
        .bind("aggregate_type", &*entry.aggregate_type)
        .bind("aggregate_id", &*entry.aggregate_id)
        .bind("event_type", &*entry.event_type)
        .bind("payload", &*entry.payload)
        .bind("headers", &entry.headers)
        .bind("content_hash", &entry.content_hash)
        .bind("reason", entry.reason.as_str())
        .bind("error_message", &*message)
        .bind("error_detail", detail.as_deref())
        .bind("failed_at", entry.failed_at)
        .bind("retry_count", entry.retry_count)
        .bind("max_retries", entry.max_retries.map(i64::from))
        .bind("redrive_count", entry.redrive_count)
        .bind("created_at", entry.created_at)
        .bind("fingerprint", fingerprint(entry.reason, &entry.error_message))
        .bind("expires_at", entry.expires_at)
}
