-- $1 outbox, $2 age. Only jobs that are done: one that stopped or failed can still be resumed.
DELETE FROM postrider_jobs
WHERE outbox = $1 AND state = 'done' AND updated_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $2)
