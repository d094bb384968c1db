-- Ids (JSON) locked by recover_lock.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PENDING', o.next_retry_at = UTC_TIMESTAMP(6), o.crash_count = LEAST(o.crash_count + 1, 1000000),
    o.locked_by = NULL, o.locked_at = NULL, o.version = (o.version + 1) & 9007199254740991
