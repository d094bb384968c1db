-- Canary time begins, state, reason, cursor, done, skipped, canary ids, canary passed, runner; job.
UPDATE postrider_jobs
SET canary_until = IF(?, UTC_TIMESTAMP(6) + INTERVAL canary_within_s SECOND, canary_until),
    state = ?, reason = ?, cursor_id = ?, done_count = ?, skipped_count = ?, canary_ids = ?,
    canary_passed = ?, runner = ?, beat_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6)
WHERE id = ?
