-- The mark; ids in the archive, as JSON. Identity, request id and hash stay; the trigger lets it pass
-- because redrive_count is above zero, and tells the new ids.
INSERT INTO `{child}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, redrive_count
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    JSON_SET(COALESCE(o.headers, '{}'), '$."postrider-replay"', ?), o.content_hash,
    LEAST(GREATEST(o.redrive_count, 0), 999999) + 1
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_archive` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ORDER BY o.id
