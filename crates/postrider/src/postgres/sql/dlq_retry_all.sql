-- As dlq_retry, in the order of the dead letters.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, redrive_count, expires_at
)
SELECT event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash,
    CASE WHEN max_retries BETWEEN 1 AND 1000 THEN max_retries END,
    least(greatest(redrive_count, 0), 999999) + 1,
    CASE WHEN expires_at > now() THEN expires_at END
FROM "{outbox}_dlq" WHERE id = ANY ($1) ORDER BY id
RETURNING id, event_id::text
