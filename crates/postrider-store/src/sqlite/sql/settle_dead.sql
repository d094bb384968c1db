-- $1 ids that settle_find.sql found, $2 a JSON array of deaths. A row leaves the outbox only
-- together with its dead letter. An invalid expiry time becomes NULL.
INSERT INTO "{outbox}_dlq" (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at, fingerprint
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash, d.value ->> 'reason', d.value ->> 'message', d.value ->> 'detail',
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), o.retry_count + (d.value ->> 'attempted'),
    o.max_retries, o.redrive_count, o.created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.expires_at), d.value ->> 'fingerprint'
FROM json_each($2) AS d CROSS JOIN "{outbox}" AS o
    ON o.id = d.value ->> 'id' AND o.event_id = d.value ->> 'event_id'
WHERE o.id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO NOTHING
