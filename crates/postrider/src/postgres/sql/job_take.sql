-- $1 job, $2 runner, $3 milliseconds after which a silent runner has lost it.
UPDATE postrider_jobs
SET runner = $2, beat_at = now(), updated_at = now(),
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = $1 AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = $2 OR beat_at < now() - $3 * interval '1 millisecond')
