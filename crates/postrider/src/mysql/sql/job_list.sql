-- Newest first. Outbox, state, whether open ones only, below an id. An absent filter is NULL.
SELECT id, outbox, work, operator, note, rate, state, reason, cursor_id, max_id, done_count,
    skipped_count, canary_count, canary_within_s, runner,
    TIMESTAMPDIFF(MICROSECOND, beat_at, UTC_TIMESTAMP(6)) DIV 1000 AS beat_age_ms, created_at, updated_at
FROM postrider_jobs
WHERE outbox = COALESCE(?, outbox) AND state = COALESCE(?, state)
  AND (NOT ? OR state IN ('waiting', 'running', 'canary')) AND id < ?
ORDER BY id DESC LIMIT ?
