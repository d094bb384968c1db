-- Ids (JSON, ascending), locked, each with 1 if fan_out_known.sql found it, else 0. A copy keeps
-- the event id and the time of its original; its state is its own.
INSERT INTO `{child}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers, content_hash,
    redrive_count, max_retries, expires_at, created_at
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.headers,
    o.content_hash, GREATEST(o.redrive_count, d.known), o.max_retries, o.expires_at, o.created_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', known INT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ORDER BY o.id
