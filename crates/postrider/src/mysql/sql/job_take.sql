-- Runner; job; runner; milliseconds after which a silent runner has lost it.
UPDATE postrider_jobs
SET runner = ?, beat_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6),
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = ? AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = ? OR beat_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND)
