-- A canary that is complete is not awaited again: the operator has seen it.
UPDATE postrider_jobs
SET state = 'waiting', reason = NULL, runner = NULL, updated_at = UTC_TIMESTAMP(6),
    canary_passed = canary_passed OR COALESCE(done_count >= canary_count, 0)
WHERE id = ?
