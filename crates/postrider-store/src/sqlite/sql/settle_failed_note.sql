-- Runs before settle_failed.sql, which changes the version that shows whether this relay still
-- holds a row. $1 relay, $2 a JSON array of failures.
INSERT INTO "{outbox}_attempts" (event_id, attempt, error, took_ms, relay_id)
SELECT o.event_id, o.retry_count + 1, f.value ->> 'error', f.value ->> 'took_ms', $1
FROM json_each($2) AS f CROSS JOIN "{outbox}" AS o ON o.id = f.value ->> 'id'
WHERE o.version = f.value ->> 'version' AND o.event_id = f.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
