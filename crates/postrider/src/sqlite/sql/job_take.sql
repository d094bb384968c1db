-- $1 job, $2 runner, $3 and $4 time after which a silent runner has lost it, back and ahead.
-- A sign of life that lies so far ahead is from before the clock was set back: a runner that lives
-- gives a new one within a second, and a step of the one that lost the job does nothing.
UPDATE postrider_jobs
SET runner = $2, beat_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = $1 AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = $2 OR beat_at NOT BETWEEN
      strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $3) AND strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $4))
