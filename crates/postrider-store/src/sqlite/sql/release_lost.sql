-- One step of a walk over the table: $1 relay, $2 ids of the step, $3 in flight. Fenced like a
-- settle: after a take-over only recovery may change the rows.
UPDATE "{outbox}"
SET status = 'PENDING', next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    locked_by = NULL, locked_at = NULL, version = (version + 1) & 9007199254740991
WHERE id IN (SELECT value FROM json_each($2)) AND status = 'PROCESSING' AND locked_by = $1
  AND id NOT IN (SELECT value FROM json_each($3))
