-- name: events
-- Newest first. Lists leave payloads out: a page of them could weigh gigabytes.
SELECT id, {message but payload}, CASE WHEN :payloads THEN payload END AS payload,
    octet_length(payload) AS payload_bytes, status, retry_count, redrive_count, next_retry_at, expires_at,
    locked_by, locked_at, last_error, created_at, NULL AS delivered_at,
    CASE WHEN :payloads THEN response END AS response
FROM "{outbox}" {primary}
WHERE {filter} AND id >= :from AND id < :below
ORDER BY id DESC LIMIT :limit

-- name: events_filter
-- An absent filter is NULL. No live event is delivered.
(:status IS NULL OR status = :status)
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR aggregate_id = :aggregate_id)
  AND (:event_id IS NULL OR event_id = :event_id)
  AND (:request_id IS NULL OR request_id = :request_id)
  AND (:error IS NULL OR {instr}(lower(last_error), lower(:error)) > 0)
  AND (:created_since IS NULL OR created_at >= :created_since)
  AND (:created_until IS NULL OR created_at < :created_until)
  AND :delivered_since IS NULL AND :delivered_until IS NULL
  AND (:replayed IS NULL OR {replayed} = :replayed)

-- name: events_below
-- The end of the next step of a search: so many rows below an id.
SELECT min(id) AS from_id, {now} AS as_of FROM (
    SELECT id FROM "{outbox}" {primary} WHERE id < :before ORDER BY id DESC LIMIT :rows
) AS step

-- name: events_count
SELECT count(*) AS found FROM "{outbox}" {primary}
WHERE {filter} AND id >= :from AND id < :below

-- name: archived_events
-- As `events`: what an archived event does not have is NULL.
SELECT id, {message but payload}, CASE WHEN :payloads THEN payload END AS payload,
    octet_length(payload) AS payload_bytes, 'COMPLETED' AS status, retry_count, redrive_count,
    NULL AS next_retry_at, NULL AS expires_at, NULL AS locked_by, NULL AS locked_at,
    NULL AS last_error, created_at, delivered_at,
    CASE WHEN :payloads THEN response END AS response
FROM "{outbox}_archive" {primary}
WHERE {filter} AND id >= :from AND id < :below
ORDER BY id DESC LIMIT :limit

-- name: archived_filter
-- An absent filter is NULL. All of them are COMPLETED, and none has an error.
(:status IS NULL OR :status = 'COMPLETED')
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:aggregate_type IS NULL OR aggregate_type = :aggregate_type)
  AND (:aggregate_id IS NULL OR aggregate_id = :aggregate_id)
  AND (:event_id IS NULL OR event_id = :event_id)
  AND (:request_id IS NULL OR request_id = :request_id)
  AND :error IS NULL
  AND (:created_since IS NULL OR created_at >= :created_since)
  AND (:created_until IS NULL OR created_at < :created_until)
  AND (:delivered_since IS NULL OR delivered_at >= :delivered_since)
  AND (:delivered_until IS NULL OR delivered_at < :delivered_until)
  AND (:replayed IS NULL OR {replayed} = :replayed)

-- name: archived_below
-- The end of the next step of a search: so many rows below an id.
SELECT min(id) AS from_id, {now} AS as_of FROM (
    SELECT id FROM "{outbox}_archive" {primary} WHERE id < :before ORDER BY id DESC LIMIT :rows
) AS step

-- name: archived_count
SELECT count(*) AS found FROM "{outbox}_archive" {primary}
WHERE {filter} AND id >= :from AND id < :below

-- name: archived_last
SELECT coalesce(max(id), 0) AS last_id FROM "{outbox}_archive"

-- name: archived_window
-- The end of the next step of a job: so many rows after an id, up to another.
SELECT max(id) AS to_id FROM (
    SELECT id FROM "{outbox}_archive" {primary}
    WHERE id > :after AND id <= :to ORDER BY id LIMIT :rows
) AS step

-- name: archived_next
-- Oldest first.
SELECT id, event_id, octet_length(payload) AS payload_bytes FROM "{outbox}_archive" {primary}
WHERE {filter} AND id > :after AND id <= :to
ORDER BY id LIMIT :limit

-- name: replay
-- `:entries` is a JSON array of ids and identities in the archive. Identity, request id and hash
-- stay; the trigger lets the event pass because redrive_count is above zero. After a TRUNCATE or a
-- restore several archived events have the same id, so an id alone does not say which one is meant.

-- name: attempts
SELECT attempt, failed_at, error, took_ms, relay_id FROM "{outbox}_attempts"
WHERE event_id = :event_id ORDER BY failed_at, attempt

-- name: canary
-- `:events` is a JSON array of row ids and identities. Counts those that are still in the outbox
-- and those that are dead letters; the rest is delivered. After ids were given out again, another
-- event may have the id; an identity is NULL where an older program did not note it.
