-- Ids, versions, reasons, messages, details, attempted (0 or 1), fingerprints, as JSON; the rows
-- are locked.
-- A row leaves the outbox only together with its dead letter. A dead letter that exists already is
-- not changed. An expiry time that no program can read (a zero date) becomes NULL.
INSERT INTO `{outbox}_dlq` (
    original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    headers, content_hash, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at, fingerprint
)
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash, d.reason, d.message, d.detail, UTC_TIMESTAMP(6),
    o.retry_count + d.attempted, o.max_retries, o.redrive_count, o.created_at,
    CASE WHEN o.expires_at >= '1000-01-01' THEN o.expires_at END, d.fingerprint
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    reason VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]',
    message VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]',
    detail TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[4]',
    attempted INT PATH '$[5]',
    fingerprint VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[6]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ON DUPLICATE KEY UPDATE `{outbox}_dlq`.original_id = `{outbox}_dlq`.original_id
