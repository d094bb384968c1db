-- Ids (JSON, ascending), locked. A copy has the identity and the time of its original, and a life of its
-- own.
INSERT INTO `{child}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers, content_hash,
    redrive_count, max_retries, expires_at, created_at
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.headers,
    o.content_hash, o.redrive_count, o.max_retries, o.expires_at, o.created_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ORDER BY o.id
