-- The dead-letter table could not take the event. The row stays until maintenance moves it. $1
-- relay, $2 a JSON array of deaths.
UPDATE "{outbox}" AS o
SET status = 'DEAD_LETTER', dead_reason = d.value ->> 'reason',
    last_error = substr(d.value ->> 'message', 1, 500),
    retry_count = min(o.retry_count + (d.value ->> 'attempted'), 1000000), crash_count = 0,
    locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM json_each($2) AS d
WHERE o.id = d.value ->> 'id' AND o.version = d.value ->> 'version'
  AND o.event_id = d.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
