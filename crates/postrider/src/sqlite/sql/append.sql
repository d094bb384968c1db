-- name: append
-- Appends one event. Returns no row if the trigger skipped a repeated request id. strftime returns
-- NULL for a delay that is NULL.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $10), strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $11))
RETURNING id

-- name: append_all
-- Appends many events in one statement, in the given order (see insert_order): ids ascend with it.
-- One JSON array of arrays instead of 11 variables per row: the statement's text stays the same and
-- is prepared once.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
SELECT e.value ->> 0, e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5,
    e.value ->> 6, e.value ->> 7, e.value ->> 8,
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', e.value ->> 9),
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', e.value ->> 10)
FROM json_each($1) AS e
ORDER BY e.key
RETURNING id, event_id, request_id

-- name: find_keys
-- The first events of request ids that were skipped as repeats: $1 a JSON array.
SELECT request_id, id FROM "{outbox}_keys" WHERE request_id IN (SELECT value FROM json_each($1))
