-- Runs before settle_failed, which counts the attempt. The relay is in the JSON, because in mode
-- `lanes` no row names it.
INSERT INTO `{outbox}_attempts` (event_id, attempt, error, took_ms, relay_id)
SELECT o.event_id, o.retry_count + 1, d.error, d.took_ms, d.relay_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    error VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]',
    took_ms BIGINT PATH '$[4]',
    relay_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[5]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
