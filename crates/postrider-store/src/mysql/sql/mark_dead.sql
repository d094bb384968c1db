-- The dead-letter table could not take the event. The row stays until maintenance moves it.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    reason VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]',
    message VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]',
    attempted INT PATH '$[5]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'DEAD_LETTER', o.dead_reason = d.reason, o.last_error = LEFT(d.message, 500),
    o.retry_count = LEAST(o.retry_count + d.attempted, 1000000), o.crash_count = 0,
    o.locked_by = NULL, o.locked_at = NULL, o.version = (o.version + 1) & 9007199254740991,
    o.updated_at = UTC_TIMESTAMP(6)
