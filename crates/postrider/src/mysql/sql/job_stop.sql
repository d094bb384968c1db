-- Reason; job.
UPDATE postrider_jobs
SET state = 'stopped', reason = ?, runner = NULL, updated_at = UTC_TIMESTAMP(6)
WHERE id = ?
