-- name: dlq_list
-- Newest first, without payloads.
SELECT {letter}, NULL AS payload
FROM "{outbox}_dlq" {primary}
WHERE {filter} AND id >= :from AND id < :below
ORDER BY id DESC LIMIT :limit

-- name: dlq_filter
-- An absent filter is NULL.
(:event_id IS NULL OR event_id = :event_id)
  AND (:fingerprint IS NULL OR fingerprint = :fingerprint)
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR aggregate_id = :aggregate_id)
  AND (:error IS NULL OR {instr}(lower(error_message), lower(:error)) > 0)
  AND (:reason IS NULL OR reason = :reason) AND (:resolved IS NULL OR resolved = :resolved)
  AND (:since IS NULL OR failed_at >= :since) AND (:until IS NULL OR failed_at < :until)

-- name: dlq_below
-- The end of the next step of a search: so many rows below an id.
SELECT min(id) AS from_id, {now} AS as_of FROM (
    SELECT id FROM "{outbox}_dlq" {primary} WHERE id < :before ORDER BY id DESC LIMIT :rows
) AS step

-- name: dlq_count
SELECT count(*) AS found FROM "{outbox}_dlq" {primary}
WHERE {filter} AND id >= :from AND id < :below

-- name: dlq_count_open
-- Unresolved ones, from their index alone and no further than asked: a count that is never cut
-- short.
SELECT count(*) AS found
FROM (SELECT 1 FROM "{outbox}_dlq" WHERE {unresolved} LIMIT :limit) AS unresolved

-- name: dlq_groups
-- By kind of error, event type and hour.
SELECT fingerprint, event_type, {hour failed_at} AS hour, count(*) AS found, max(id) AS newest_id,
    min(failed_at) AS first_failed_at, max(failed_at) AS last_failed_at
FROM "{outbox}_dlq" {primary}
WHERE {filter} AND id >= :from AND id < :below
GROUP BY 1, 2, 3

-- name: dlq_groups_open
-- As `dlq_groups`, of all unresolved ones, from the index alone.
SELECT fingerprint, event_type, {hour failed_at} AS hour, count(*) AS found, max(id) AS newest_id,
    min(failed_at) AS first_failed_at, max(failed_at) AS last_failed_at
FROM "{outbox}_dlq" {index "{outbox}_dlq_groups"}
WHERE {unresolved} AND id >= :from AND id < :below
GROUP BY 1, 2, 3

-- name: dlq_samples
SELECT id, reason, error_message FROM "{outbox}_dlq" WHERE id {among :ids}

-- name: dlq_show
SELECT {letter}, payload
FROM "{outbox}_dlq" WHERE id = :id

-- name: dlq_by_event
-- All dead letters of one identity, newest first, without payloads.
SELECT {letter}, NULL AS payload
FROM "{outbox}_dlq" WHERE event_id = :event_id ORDER BY id DESC LIMIT :limit

-- name: dlq_lock
-- Of two operators at once, the second waits here (on SQLite: for the write lock) and then sees
-- `resolved`.
SELECT resolved, resolved_by FROM "{outbox}_dlq" WHERE id = :id {lock}

-- name: dlq_retry
-- Appends a fresh event with a fresh budget. Identity, request id and stored hash stay; the trigger
-- lets it pass because redrive_count is above zero. next_retry_at NULL: it is fresh. A time to
-- expire that has passed is left out: what an operator sends again must not die at once.
INSERT INTO "{outbox}" (
    {message}, max_retries, redrive_count, expires_at
)
SELECT {message},
    CASE WHEN max_retries BETWEEN 1 AND 1000 THEN max_retries END,
    CASE WHEN redrive_count BETWEEN 0 AND 999999 THEN redrive_count + 1
        WHEN redrive_count < 0 THEN 1 ELSE 1000000 END,
    CASE WHEN expires_at > {now} THEN expires_at END
FROM "{outbox}_dlq" WHERE id = :id
{returning id}

-- name: dlq_resolve
UPDATE "{outbox}_dlq"
SET resolved = TRUE, resolved_at = {now}, resolved_by = :operator, resolution_note = :note,
    retried_as = :retried_as, updated_at = {now}
WHERE id = :id

-- name: dlq_reopen
-- What was sent again cannot be taken back.
UPDATE "{outbox}_dlq"
SET resolved = FALSE, resolved_at = NULL, resolved_by = NULL, resolution_note = NULL,
    updated_at = {now}
WHERE id = :id AND resolved AND retried_as IS NULL

-- name: dlq_resend_expiry
-- An event that an edited dead letter became expires when that would have, unless the time has
-- passed.
UPDATE "{outbox}"
SET expires_at = (SELECT d.expires_at FROM "{outbox}_dlq" AS d WHERE d.id = :id)
WHERE id = :fresh
  AND EXISTS (SELECT 1 FROM "{outbox}_dlq" AS d WHERE d.id = :id AND d.expires_at > {now})

-- name: dlq_is_live
-- Locked (on SQLite: by the transaction), so that maintenance does not move the row between this look
-- and the import.
SELECT id FROM "{outbox}" WHERE id = :original_id AND event_id = :event_id {lock}

-- name: dlq_import
INSERT INTO "{outbox}_dlq" (
    original_id, {message}, reason, error_message, error_detail, failed_at, retry_count, max_retries,
    redrive_count, event_created_at, fingerprint, expires_at
) VALUES (
    :original_id, :event_id, :request_id, :aggregate_type, :aggregate_id, :event_type, :payload,
    :headers{::jsonb}, :content_hash, :reason, :error_message, :error_detail, :failed_at,
    :retry_count, :max_retries, :redrive_count, :created_at, :fingerprint, :expires_at
)
{unless_known original_id, event_id}

-- name: dlq_is_closed
-- Whether a dead letter was here until it was cleaned up, or its event was delivered after all.
-- Asked after the insert: a clean-up that was under way until then is seen.
SELECT EXISTS (
        SELECT 1 FROM "{outbox}_closed" WHERE original_id = :original_id AND event_id = :event_id
    ) OR EXISTS (
        SELECT 1 FROM "{outbox}_archive" WHERE id = :original_id AND event_id = :event_id
    ) AS closed

-- name: dlq_last
SELECT coalesce(max(id), 0) AS last_id FROM "{outbox}_dlq"

-- name: dlq_window
-- The end of the next step of a job: so many rows after an id, up to another.
SELECT max(id) AS to_id FROM (
    SELECT id FROM "{outbox}_dlq" {primary}
    WHERE id > :after AND id <= :to ORDER BY id LIMIT :rows
) AS step

-- name: dlq_next
-- Oldest first.
SELECT id, octet_length(payload) AS payload_bytes FROM "{outbox}_dlq" {primary}
WHERE {filter} AND NOT resolved AND id > :after AND id <= :to
ORDER BY id LIMIT :limit

-- name: dlq_lock_all
-- With their identities. An operator may have been faster: then it is resolved by now.
SELECT id, event_id FROM "{outbox}_dlq" WHERE id {among :ids} AND NOT resolved
ORDER BY id {lock}

-- name: dlq_retry_all
-- As `dlq_retry`, in the order of the dead letters.
INSERT INTO "{outbox}" (
    {message}, max_retries, redrive_count, expires_at
)
SELECT {message},
    CASE WHEN max_retries BETWEEN 1 AND 1000 THEN max_retries END,
    CASE WHEN redrive_count BETWEEN 0 AND 999999 THEN redrive_count + 1
        WHEN redrive_count < 0 THEN 1 ELSE 1000000 END,
    CASE WHEN expires_at > {now} THEN expires_at END
FROM "{outbox}_dlq" WHERE id {among :ids} ORDER BY id
{returning id, event_id}

-- name: dlq_resolve_all
-- `:letters` is a JSON array of ids and row ids of the fresh events.

-- name: dlq_oldest
-- Oldest first, without payloads.
SELECT id, error_message, redrive_count, {ms_since failed_at} AS age_ms
FROM "{outbox}_dlq" {primary}
WHERE {filter} AND NOT resolved AND id > :after AND id <= :to
ORDER BY id LIMIT :limit

-- name: dlq_unseen
-- Written by an older program, or moved by maintenance itself.
SELECT id, reason, error_message FROM "{outbox}_dlq" WHERE fingerprint = ''
ORDER BY id LIMIT :limit

-- name: dlq_fingerprint
-- `:kinds` is a JSON array of ids and fingerprints.
