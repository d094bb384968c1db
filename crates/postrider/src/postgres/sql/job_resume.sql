-- A canary that is complete is not awaited again: the operator has seen it.
UPDATE postrider_jobs
SET state = 'waiting', reason = NULL, runner = NULL, updated_at = now(),
    canary_passed = canary_passed OR coalesce(done_count >= canary_count, false)
WHERE id = $1
