-- Events that were alone in flight when the owner of their lane died: ids (JSON). Sets
-- next_retry_at, so that mode `rows` treats them as suspects too.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.crash_count = LEAST(GREATEST(o.crash_count, 2) + 1, 1000000), o.version = (o.version + 1) & 9007199254740991,
    o.next_retry_at = COALESCE(o.next_retry_at, UTC_TIMESTAMP(6))
