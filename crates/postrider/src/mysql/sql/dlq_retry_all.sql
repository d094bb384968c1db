-- Ids, as JSON. As dlq_retry, in the order of the dead letters; the trigger tells the new ids.
INSERT INTO `{outbox}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, redrive_count, expires_at
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash,
    CASE WHEN o.max_retries BETWEEN 1 AND 1000 THEN o.max_retries END,
    LEAST(GREATEST(o.redrive_count, 0), 999999) + 1,
    CASE WHEN o.expires_at > UTC_TIMESTAMP(6) THEN o.expires_at END
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ORDER BY o.id
