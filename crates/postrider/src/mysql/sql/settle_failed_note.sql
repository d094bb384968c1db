-- Before settle_failed, which clears the owner and counts the attempt.
INSERT INTO `{outbox}_attempts` (event_id, attempt, error, took_ms, relay_id)
SELECT o.event_id, o.retry_count + 1, d.error, d.took_ms, o.locked_by
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    error VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]',
    took_ms BIGINT PATH '$[4]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
