-- Newest first below $1. An absent filter is NULL; $5 is a piece of the error text.
SELECT id, original_id, event_id::text, request_id, aggregate_type, aggregate_id, event_type,
    payload, headers::text, content_hash, reason, error_message, error_detail, failed_at,
    retry_count, max_retries, redrive_count, event_created_at, resolved, resolved_at, resolved_by,
    resolution_note, retried_as, created_at, updated_at
FROM "{outbox}_dlq"
WHERE id < $1 AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR aggregate_type = $3) AND ($4::text IS NULL OR aggregate_id = $4)
  AND ($5::text IS NULL OR position(lower($5) IN lower(error_message)) > 0)
  AND ($6::text IS NULL OR reason = $6) AND ($7::boolean IS NULL OR resolved = $7)
  AND ($8::timestamptz IS NULL OR failed_at >= $8) AND ($9::timestamptz IS NULL OR failed_at < $9)
ORDER BY id DESC LIMIT $10
