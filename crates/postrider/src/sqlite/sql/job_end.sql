-- $1 job, $2 runner, $3 state, $4 reason.
UPDATE postrider_jobs SET state = $3, reason = $4, runner = NULL, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = $1 AND runner = $2 AND state IN ('waiting', 'running', 'canary')
