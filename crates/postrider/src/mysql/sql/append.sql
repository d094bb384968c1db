-- name: append
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

-- name: find_key
-- The first event of a request id that was refused as a repeat. A locking read, because the
-- snapshot of REPEATABLE READ may be older than that event. The key exists, so no gap is locked.
SELECT id FROM `{outbox}_keys` WHERE request_id = ? LOCK IN SHARE MODE

-- name: find_keys
-- The request ids (JSON) of a refused batch that are known. Not a locking read: for unknown ids it
-- would lock a gap against other writers. The result is only a hint for splitting the batch.
SELECT k.request_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    request_id VARCHAR(255) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$'
)) AS d STRAIGHT_JOIN `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys`)
    ON k.request_id = d.request_id
