-- Newest first below $1. An absent filter is NULL; $5 is a piece of the error text.
SELECT id, original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, resolved, resolved_at, resolved_by,
    resolution_note, retried_as, created_at, updated_at
FROM "{outbox}_dlq"
WHERE id < $1 AND ($2 IS NULL OR event_type = $2)
  AND ($3 IS NULL OR aggregate_type = $3) AND ($4 IS NULL OR aggregate_id = $4)
  AND ($5 IS NULL OR instr(lower(error_message), lower($5)) > 0)
  AND ($6 IS NULL OR reason = $6) AND ($7 IS NULL OR resolved = $7)
  AND ($8 IS NULL OR failed_at >= $8) AND ($9 IS NULL OR failed_at < $9)
ORDER BY id DESC LIMIT $10
