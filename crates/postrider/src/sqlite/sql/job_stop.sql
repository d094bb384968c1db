UPDATE postrider_jobs SET state = 'stopped', reason = $2, runner = NULL, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = $1
