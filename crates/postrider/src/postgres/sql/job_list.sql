-- Newest first below $4. An absent filter is NULL; $3 asks for open ones.
SELECT id, outbox, work, operator, note, rate, state, reason, cursor_id, max_id, done_count,
    skipped_count, canary_count, canary_within_s, runner,
    (extract(epoch FROM now() - beat_at) * 1000)::bigint AS beat_age_ms, created_at, updated_at
FROM postrider_jobs
WHERE ($1::text IS NULL OR outbox = $1) AND ($2::text IS NULL OR state = $2)
  AND (NOT $3 OR state IN ('waiting', 'running', 'canary')) AND id < $4
ORDER BY id DESC LIMIT $5
