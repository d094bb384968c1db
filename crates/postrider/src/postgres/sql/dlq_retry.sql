-- A fresh event with a fresh budget. Identity, request id and stored hash stay; the trigger lets it
-- pass because redrive_count is above zero. next_retry_at NULL: it is fresh. A time to expire that
-- has passed is left out: what an operator sends again must not die at once.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, redrive_count, expires_at
)
SELECT event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash,
    CASE WHEN max_retries BETWEEN 1 AND 1000 THEN max_retries END,
    least(greatest(redrive_count, 0), 999999) + 1,
    CASE WHEN expires_at > now() THEN expires_at END
FROM "{outbox}_dlq" WHERE id = $1
RETURNING id
