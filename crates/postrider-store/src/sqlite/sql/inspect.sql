-- name: failed_rows
-- $1 maximum rows. By the index of waiting rows, soonest due first: it has failed rows and also
-- deferred ones, of which an outage creates millions.
SELECT count(*) FILTER (WHERE status = 'FAILED') AS failed, count(*) AS seen
FROM (
    SELECT status FROM "{outbox}" WHERE next_retry_at IS NOT NULL ORDER BY next_retry_at, id LIMIT $1
) AS waiting

-- name: live_states
-- $1 maximum rows, oldest first.
SELECT event_type, status, count(*) FROM (
    SELECT event_type, status FROM "{outbox}" ORDER BY id LIMIT $1
) AS oldest GROUP BY event_type, status ORDER BY event_type, status

-- name: unresolved_types
-- $1 maximum rows, newest first.
SELECT event_type, count(*) FROM (
    SELECT event_type FROM "{outbox}_dlq" WHERE NOT resolved ORDER BY id DESC LIMIT $1
) AS newest GROUP BY event_type ORDER BY count(*) DESC, event_type
