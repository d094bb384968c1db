-- One step of a walk over the table: $1 ids of the step, $2 dead relays, $3 live relays, $4 stall
-- time as a modifier of strftime.
UPDATE "{outbox}"
SET status = 'PENDING', next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    crash_count = min(crash_count + 1, 1000000), locked_by = NULL, locked_at = NULL, version = (version + 1) & 9007199254740991
WHERE id IN (SELECT value FROM json_each($1)) AND status = 'PROCESSING'
  AND (locked_by IN (SELECT value FROM json_each($2))
       OR ((locked_by IS NULL OR locked_by NOT IN (SELECT value FROM json_each($3)))
           AND (locked_at IS NULL OR locked_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $4)
                OR locked_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour'))))
