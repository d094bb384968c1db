UPDATE postrider_jobs SET state = 'stopped', reason = $2, runner = NULL, updated_at = now()
WHERE id = $1
