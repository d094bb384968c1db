-- Ids, versions, delays in ms, errors (NULL: not tried), as JSON; the rows are locked.
-- next_retry_at is always set, because the scan for fresh rows has passed this id already.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', delay_ms BIGINT PATH '$[2]',
    error VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[3]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PENDING',
    o.next_retry_at = UTC_TIMESTAMP(6) + INTERVAL d.delay_ms * 1000 MICROSECOND,
    o.crash_count = CASE WHEN d.error IS NULL THEN o.crash_count ELSE 0 END,
    o.last_error = COALESCE(d.error, o.last_error),
    o.locked_by = NULL, o.locked_at = NULL, o.version = (o.version + 1) & 9007199254740991,
    o.updated_at = CASE WHEN d.error IS NULL THEN o.updated_at ELSE UTC_TIMESTAMP(6) END
