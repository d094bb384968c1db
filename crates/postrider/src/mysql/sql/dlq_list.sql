-- Newest first below an id. An absent filter is NULL, and then a column is compared with itself.
SELECT id, original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, resolved, resolved_at, resolved_by,
    resolution_note, retried_as, created_at, updated_at
FROM `{outbox}_dlq`
WHERE id < ? AND event_type = COALESCE(?, event_type)
  AND aggregate_type = COALESCE(?, aggregate_type) AND aggregate_id = COALESCE(?, aggregate_id)
  AND LOCATE(LOWER(COALESCE(?, '')), LOWER(error_message)) > 0
  AND reason = COALESCE(?, reason) AND resolved = COALESCE(?, resolved)
  AND failed_at >= COALESCE(?, failed_at) AND failed_at < COALESCE(?, '9999-12-31')
ORDER BY id DESC LIMIT ?
