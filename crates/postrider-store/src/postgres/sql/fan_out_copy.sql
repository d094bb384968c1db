-- $1 ids ascending, locked. A copy keeps the event id and the time of its original; its state is
-- its own. A request id that the child remembers belongs to another event: one of another parent,
-- or one so old that the parent has forgotten it. The copy must not be skipped as a repeat, so it
-- counts as retried.
INSERT INTO "{child}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers, content_hash,
    redrive_count, max_retries, expires_at, created_at
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.headers,
    o.content_hash,
    CASE WHEN EXISTS (SELECT 1 FROM "{child}_keys" AS k WHERE k.request_id = o.request_id)
        THEN greatest(o.redrive_count, 1) ELSE o.redrive_count END,
    o.max_retries, o.expires_at, o.created_at
FROM "{outbox}" AS o WHERE o.id = ANY ($1) ORDER BY o.id
