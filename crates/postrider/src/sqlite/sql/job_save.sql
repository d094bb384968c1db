-- $1 job, $2 state, $3 reason, $4 cursor, $5 done, $6 skipped, $7 canary ids, $8 canary passed,
-- $9 its time begins, $10 runner.
UPDATE postrider_jobs
SET state = $2, reason = $3, cursor_id = $4, done_count = $5, skipped_count = $6, canary_ids = $7,
    canary_passed = $8, runner = $10, beat_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    canary_until = CASE WHEN $9 THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+' || canary_within_s || ' seconds')
        ELSE canary_until END
WHERE id = $1
