-- Runner; job; runner; milliseconds after which a silent runner has lost it, twice.
-- A sign of life that lies so far ahead is from before the clock was set back: a runner that lives
-- gives a new one within a second, and a step of the one that lost the job does nothing.
UPDATE postrider_jobs
SET runner = ?, beat_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6),
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = ? AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = ? OR beat_at NOT BETWEEN
      UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
      AND UTC_TIMESTAMP(6) + INTERVAL ? * 1000 MICROSECOND)
