-- $1 ids that settle_find.sql found. The same transaction removes them from the outbox.
INSERT INTO "{outbox}_archive" (
    id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, retry_count, redrive_count, created_at, delivered_at,
    response
)
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, retry_count, redrive_count, created_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    response
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))
