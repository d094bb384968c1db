-- $1 relay, $2 a JSON array of failures. The next attempt is due on the database's clock.
UPDATE "{outbox}" AS o
SET status = 'FAILED', retry_count = min(o.retry_count + 1, 1000000), crash_count = 0,
    last_error = f.value ->> 'error',
    next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', f.value ->> 'delay'),
    locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM json_each($2) AS f
WHERE o.id = f.value ->> 'id' AND o.version = f.value ->> 'version'
  AND o.event_id = f.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
