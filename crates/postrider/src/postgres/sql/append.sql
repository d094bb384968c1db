-- Appends one event. Returns no row if the trigger skipped a repeated request id.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
SELECT $1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9,
       now() + $10 * interval '1 millisecond', now() + $11 * interval '1 millisecond'
RETURNING id
