-- Appends one event; append_all repeats the last part, which is the row. No id, because only the
-- database assigns it. Times use UTC_TIMESTAMP, because the application's session may be in any
-- time zone.
INSERT INTO `{outbox}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?,
    UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND,
    UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND)
