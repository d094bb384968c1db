-- name: job_create
INSERT INTO postrider_jobs (
    outbox, work, operator, note, rate, canary_count, canary_within_s, max_id, request_key
) VALUES (
    :outbox, :work, :operator, :note, :rate, :canary_count, :canary_within_s, :max_id, :request_key
)
{returning id}

-- name: job_by_request_key
SELECT id FROM postrider_jobs WHERE request_key = :request_key

-- name: job_list
-- Newest first. An absent filter is NULL.
SELECT id, outbox, work, operator, note, rate, state, reason, cursor_id, max_id, done_count,
    skipped_count, canary_count, canary_within_s, runner, {ms_since beat_at} AS beat_age_ms,
    created_at, updated_at
FROM postrider_jobs
WHERE (:outbox IS NULL OR outbox = :outbox) AND (:state IS NULL OR state = :state)
  AND (NOT :open OR state IN ('waiting', 'running', 'canary')) AND id < :below
ORDER BY id DESC LIMIT :limit

-- name: job_take
-- A sign of life that lies far ahead is from before the clock was set back: a runner that lives
-- gives a new one within a second, and a step of the one that lost the job does nothing.
UPDATE postrider_jobs
SET runner = :runner, beat_at = {now}, updated_at = {now},
    state = CASE state WHEN 'waiting' THEN 'running' ELSE state END
WHERE id = :id AND state IN ('waiting', 'running', 'canary')
  AND (runner IS NULL OR runner = :runner
    OR beat_at NOT BETWEEN {ago :quiet} AND {ahead :quiet})

-- name: job_lock
-- A runner that lost the job finds nothing; one that takes it over waits for the step under way (on
-- SQLite: for the write lock).
SELECT canary_ids, canary_passed, coalesce(canary_until < {now}, FALSE) AS overdue
FROM postrider_jobs
WHERE id = :id AND runner = :runner AND state IN ('running', 'canary') {lock}

-- name: job_save
UPDATE postrider_jobs
SET canary_until = CASE WHEN :starts THEN {in_seconds canary_within_s} ELSE canary_until END,
    state = :state, reason = :reason, cursor_id = :cursor, done_count = :done,
    skipped_count = :skipped, canary_ids = :canary_ids, canary_passed = :canary_passed,
    runner = :runner, beat_at = {now}, updated_at = {now}
WHERE id = :id

-- name: job_end
UPDATE postrider_jobs SET state = :state, reason = :reason, runner = NULL, updated_at = {now}
WHERE id = :id AND runner = :runner AND state IN ('waiting', 'running', 'canary')

-- name: job_state
SELECT state FROM postrider_jobs WHERE id = :id {lock}

-- name: job_stop
UPDATE postrider_jobs SET state = 'stopped', reason = :reason, runner = NULL, updated_at = {now}
WHERE id = :id

-- name: job_resume
-- A canary that is complete is not awaited again: the operator has seen it.
UPDATE postrider_jobs
SET state = 'waiting', reason = NULL, runner = NULL, updated_at = {now},
    canary_passed = canary_passed OR coalesce(done_count >= canary_count, FALSE)
WHERE id = :id

-- name: clean_jobs
-- Only what is done; a job that stopped or failed can still be resumed. In one statement: people
-- make jobs, so there are not many.
DELETE FROM postrider_jobs
WHERE outbox = :outbox AND state = 'done' AND updated_at < {ago :age}
