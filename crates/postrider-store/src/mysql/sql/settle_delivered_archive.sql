-- Ids (JSON), locked; `remove` deletes them from the outbox in the same transaction.
INSERT INTO `{outbox}_archive` (
    id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, retry_count, redrive_count, created_at, delivered_at, response
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash, o.retry_count, o.redrive_count, o.created_at, UTC_TIMESTAMP(6),
    o.response
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
