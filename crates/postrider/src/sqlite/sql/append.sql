-- Appends one event. Returns no row if the trigger skipped a repeated request id. strftime returns
-- NULL for a delay that is NULL.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $10), strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $11))
RETURNING id
