-- Newest first below $4. An absent filter is NULL; $3 asks for open ones.
SELECT id, outbox, work, operator, note, rate, state, reason, cursor_id, max_id, done_count,
    skipped_count, canary_count, canary_within_s, runner,
    CAST((julianday('now') - julianday(beat_at)) * 86400000 AS INTEGER) AS beat_age_ms, created_at, updated_at
FROM postrider_jobs
WHERE ($1 IS NULL OR outbox = $1) AND ($2 IS NULL OR state = $2)
  AND (NOT $3 OR state IN ('waiting', 'running', 'canary')) AND id < $4
ORDER BY id DESC LIMIT $5
