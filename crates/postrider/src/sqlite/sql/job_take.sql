-- $1 job, $2 runner, $3 time after which a silent runner has lost it.
UPDATE postrider_jobs
SET runner = $2, beat_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = $1 AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = $2 OR beat_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $3))
