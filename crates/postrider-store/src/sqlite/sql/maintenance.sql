-- name: release_lost
-- One step of a walk over the table: $1 relay, $2 ids of the step, $3 in flight. Fenced like a
-- settle: after a take-over only recovery may change the rows.
UPDATE "{outbox}"
SET status = 'PENDING', dead_reason = NULL, next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    locked_by = NULL, locked_at = NULL, version = {next version}
WHERE id IN (SELECT value FROM json_each($2)) AND status = 'PROCESSING' AND locked_by = $1
  AND id NOT IN (SELECT value FROM json_each($3))

-- name: recover
-- One step of a walk over the table: $1 ids of the step, $2 dead relays, $3 live relays, $4 stall
-- time as a modifier of strftime. A suspect waits longer after each crash: a relay that starts takes
-- suspects first, and if relays are killed right after their start, an innocent one would be blamed.
UPDATE "{outbox}"
SET status = 'PENDING', dead_reason = NULL,
    next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', CASE WHEN crash_count >= 2
        THEN (5 * min(crash_count - 1, 3)) || ' seconds' ELSE '0 seconds' END),
    crash_count = min(crash_count + 1, 1000000), locked_by = NULL, locked_at = NULL, version = {next version}
WHERE id IN (SELECT value FROM json_each($1)) AND status = 'PROCESSING'
  AND (locked_by IN (SELECT value FROM json_each($2))
       OR ((locked_by IS NULL OR locked_by NOT IN (SELECT value FROM json_each($3)))
           AND (locked_at IS NULL OR locked_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $4)
                OR locked_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour'))))

-- name: move_marked_find
-- Rows marked DEAD_LETTER from id $2 to $3, oldest first; the same transaction moves exactly these.
SELECT id, event_id FROM "{outbox}" INDEXED BY "{outbox}_marked"
WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER' AND id BETWEEN $2 AND $3
ORDER BY id LIMIT $1

-- name: move_marked
-- $1 ids that move_marked_find.sql found. If an import from the backup file was faster, the dead
-- letter exists and the row is only deleted.
INSERT INTO "{outbox}_dlq" (
    original_id, {message}, reason, error_message, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at
)
SELECT id, {message}, dead_reason, coalesce(last_error, ''), updated_at, retry_count,
    max_retries, redrive_count, created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at)
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO NOTHING

-- name: marked_rows
SELECT id FROM "{outbox}" INDEXED BY "{outbox}_marked"
WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER' ORDER BY id LIMIT $1

-- name: fold_old_minutes_find
-- The last minute of the next $2 lines that are older than $1, and the number of these lines.
SELECT max(minute), count(*) FROM (
    SELECT minute FROM "{outbox}_ledger"
    WHERE minute > '1970-01-01T00:00:00.000Z'
      AND minute < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
    ORDER BY minute LIMIT $2
)

-- name: fold_old_minutes
-- Sums up minutes up to $1 by type and kind; the write lock is held.
INSERT INTO "{outbox}_ledger" (minute, event_type, kind, count, id_sum)
SELECT '1970-01-01T00:00:00.000Z', event_type, kind, sum(count), sum(id_sum) FROM "{outbox}_ledger"
WHERE minute > '1970-01-01T00:00:00.000Z' AND minute <= $1 GROUP BY 2, 3
ON CONFLICT (minute, event_type, kind)
DO UPDATE SET count = count + excluded.count, id_sum = id_sum + excluded.id_sum

-- name: fold_old_minutes_delete
DELETE FROM "{outbox}_ledger"
WHERE minute > '1970-01-01T00:00:00.000Z' AND minute <= $1

-- name: clean_closed
DELETE FROM "{outbox}_closed" WHERE (original_id, event_id) IN (
    SELECT original_id, event_id FROM "{outbox}_closed"
    WHERE closed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
    LIMIT $2
)

-- name: clean_archive
-- $1 is the age as a modifier of strftime ('-604800.000 seconds').
DELETE FROM "{outbox}_archive" WHERE rowid IN (
    SELECT rowid FROM "{outbox}_archive"
    WHERE delivered_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1) LIMIT $2
)

-- name: clean_attempts
DELETE FROM "{outbox}_attempts" WHERE rowid IN (
    SELECT rowid FROM "{outbox}_attempts"
    WHERE failed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1) LIMIT $2
)

-- name: clean_keys
-- Request ids past their window whose event has left the outbox: $1 window.
DELETE FROM "{outbox}_keys" WHERE request_id IN (
    SELECT k.request_id FROM "{outbox}_keys" AS k
    WHERE k.created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
      AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.id = k.id)
    LIMIT $2
)

-- name: clean_dlq_find
-- Resolved dead letters only: unresolved ones are never cleaned up.
SELECT id FROM "{outbox}_dlq"
WHERE resolved AND resolved_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
LIMIT $2

-- name: clean_dlq_note
-- Remembers the dead letters that clean_dlq_find.sql found ($1 ids), so that importing a backup
-- file does not restore them.
INSERT INTO "{outbox}_closed" (original_id, event_id)
SELECT original_id, event_id FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO UPDATE SET closed_at = excluded.closed_at

-- name: clean_dlq
-- $1 ids that clean_dlq_find.sql found.
DELETE FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
