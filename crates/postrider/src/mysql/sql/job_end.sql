-- State, reason; job, runner.
UPDATE postrider_jobs SET state = ?, reason = ?, runner = NULL, updated_at = UTC_TIMESTAMP(6)
WHERE id = ? AND runner = ? AND state IN ('waiting', 'running', 'canary')
