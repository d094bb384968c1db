-- $1 relay, $2 a JSON array of deferrals (error NULL: not tried). next_retry_at is always set,
-- because the scan for fresh rows has passed this id already.
UPDATE "{outbox}" AS o
SET status = 'PENDING',
    next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', d.value ->> 'delay'),
    crash_count = CASE WHEN d.value ->> 'error' IS NULL THEN o.crash_count ELSE 0 END,
    last_error = coalesce(d.value ->> 'error', o.last_error),
    locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991,
    updated_at = CASE WHEN d.value ->> 'error' IS NULL THEN o.updated_at
        ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
FROM json_each($2) AS d
WHERE o.id = d.value ->> 'id' AND o.version = d.value ->> 'version'
  AND o.event_id = d.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
