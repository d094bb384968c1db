-- Ids, versions, delays in ms, errors, durations in ms, relay, as JSON; the rows are locked. The
-- next attempt is due on the database's clock.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', delay_ms BIGINT PATH '$[2]',
    error VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'FAILED', o.retry_count = LEAST(o.retry_count + 1, 1000000), o.crash_count = 0,
    o.last_error = d.error,
    o.next_retry_at = UTC_TIMESTAMP(6) + INTERVAL d.delay_ms * 1000 MICROSECOND,
    o.locked_by = NULL, o.locked_at = NULL, o.version = (o.version + 1) & 9007199254740991,
    o.updated_at = UTC_TIMESTAMP(6)
