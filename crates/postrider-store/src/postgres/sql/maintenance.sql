-- name: release_lost
-- One step of a walk over the table: $1 relay, $2 epoch, $3 from (excluded), $4 to (included), $5
-- in flight. Fenced like a settle: after a take-over only recovery may change the rows.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
released AS (
    UPDATE "{outbox}" SET status = 'PENDING', dead_reason = NULL, next_retry_at = now(),
        locked_by = NULL, locked_at = NULL, version = {next version}
    WHERE id > $3 AND id <= $4 AND status = 'PROCESSING' AND locked_by = $1 AND id <> ALL ($5)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM released) AS settled

-- name: recover
-- One step of a walk over the table: $1 from (excluded), $2 to (included), $3 dead relays, $4 live
-- relays, $5 stall time in ms. SKIP LOCKED: a row that its owner is settling is not stalled. A suspect
-- waits longer after each crash: a relay that starts takes suspects first, and if relays are killed
-- right after their start, an innocent one would be blamed.
WITH stalled AS (
    SELECT id FROM "{outbox}"
    WHERE id > $1 AND id <= $2 AND status = 'PROCESSING'
      AND (locked_by = ANY ($3)
           OR ((locked_by IS NULL OR locked_by <> ALL ($4))
               AND (locked_at IS NULL OR locked_at < now() - $5 * interval '1 millisecond'
                    OR locked_at > now() + interval '1 hour')))
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE "{outbox}" AS o
SET status = 'PENDING', dead_reason = NULL, crash_count = least(o.crash_count + 1, 1000000),
    next_retry_at = now() + CASE WHEN o.crash_count >= 2
        THEN least(o.crash_count - 1, 3) * interval '5 seconds' ELSE interval '0' END,
    locked_by = NULL, locked_at = NULL, version = {o.next version}
FROM stalled WHERE o.id = stalled.id

-- name: move_marked
-- Moves at most $1 rows marked DEAD_LETTER, with ids from $2 to $3, to the dead letters. If an
-- import from the backup file was faster, the dead letter exists and the row is only deleted.
WITH marked AS (
    SELECT id FROM "{outbox}" WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER'
      AND id BETWEEN $2 AND $3
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM "{outbox}" AS o USING marked WHERE o.id = marked.id RETURNING o.*
),
moved AS (
    INSERT INTO "{outbox}_dlq" (
        original_id, {message}, reason, error_message, failed_at, retry_count,
        max_retries, redrive_count, event_created_at, expires_at
    )
    SELECT id, {message}, dead_reason, coalesce(last_error, ''), updated_at, retry_count,
        max_retries, redrive_count, created_at,
        CASE WHEN expires_at BETWEEN '0001-01-01Z' AND '9999-12-31Z' THEN expires_at END
    FROM gone
    ON CONFLICT (original_id, event_id) DO NOTHING
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'dead', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT id, event_id::text FROM gone ORDER BY id

-- name: marked_rows
SELECT id FROM "{outbox}" WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER'
ORDER BY id LIMIT $1

-- name: fold_ledger
-- Sums up entries in one transaction, so that a reader's snapshot has each exactly once.
WITH taken AS (
    DELETE FROM "{outbox}_ledger_entries" WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM "{outbox}_ledger_entries" LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING minute, event_type, kind, count, id_sum
),
folded AS (
    INSERT INTO "{outbox}_ledger" AS b (minute, event_type, kind, count, id_sum)
    SELECT minute, event_type, kind, sum(count), sum(id_sum) FROM taken GROUP BY 1, 2, 3
    ORDER BY 1, 2, 3
    ON CONFLICT (minute, event_type, kind)
    DO UPDATE SET count = b.count + excluded.count, id_sum = b.id_sum + excluded.id_sum
)
SELECT count(*) FROM taken

-- name: fold_old_minutes
-- Sums up minutes older than $1 ms by type and kind, at most $2 lines.
WITH taken AS (
    DELETE FROM "{outbox}_ledger" WHERE (minute, event_type, kind) IN (
        SELECT minute, event_type, kind FROM "{outbox}_ledger"
        WHERE minute > to_timestamp(0) AND minute < now() - $1 * interval '1 millisecond'
        ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    RETURNING event_type, kind, count, id_sum
),
folded AS (
    INSERT INTO "{outbox}_ledger" AS b (minute, event_type, kind, count, id_sum)
    SELECT to_timestamp(0), event_type, kind, sum(count), sum(id_sum) FROM taken GROUP BY 2, 3
    ORDER BY 2, 3
    ON CONFLICT (minute, event_type, kind)
    DO UPDATE SET count = b.count + excluded.count, id_sum = b.id_sum + excluded.id_sum
)
SELECT count(*) FROM taken

-- name: clean_closed
DELETE FROM "{outbox}_closed" WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM "{outbox}_closed"
    WHERE closed_at < now() - $1 * interval '1 millisecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
))

-- name: clean_archive
-- Deletes rows outside of the day partitions, or all of them if partitions may not be dropped.
DELETE FROM "{outbox}_archive" WHERE (id, delivered_at) IN (
    SELECT id, delivered_at FROM "{outbox}_archive"
    WHERE delivered_at < now() - $1 * interval '1 millisecond' LIMIT $2
)

-- name: clean_dlq
-- Resolved dead letters only: unresolved ones are never cleaned up. Deleted ones are remembered, so
-- that importing a backup file does not restore them.
WITH gone AS (
    DELETE FROM "{outbox}_dlq" WHERE id IN (
        SELECT id FROM "{outbox}_dlq"
        WHERE resolved AND resolved_at < now() - $1 * interval '1 millisecond'
        LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    RETURNING original_id, event_id
)
INSERT INTO "{outbox}_closed" (original_id, event_id)
SELECT original_id, event_id FROM gone ORDER BY original_id, event_id
ON CONFLICT (original_id, event_id) DO UPDATE SET closed_at = excluded.closed_at

-- name: clean_attempts
DELETE FROM "{outbox}_attempts" WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM "{outbox}_attempts"
    WHERE failed_at < now() - $1 * interval '1 millisecond' LIMIT $2
))

-- name: clean_keys
-- Request ids past their window whose event has left the outbox: $1 window in ms.
DELETE FROM "{outbox}_keys" WHERE request_id IN (
    SELECT k.request_id FROM "{outbox}_keys" AS k
    WHERE k.created_at < now() - $1 * interval '1 millisecond'
      AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.id = k.id)
    LIMIT $2 FOR UPDATE SKIP LOCKED
)

-- name: archive_partitions
-- Day partitions that hold only rows older than the retention ($1 in ms). Their names end with the
-- day.
SELECT c.relname AS name FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = '"{outbox}_archive"'::regclass AND c.relname ~ '_[0-9]{8}$'
  AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1
      < (now() AT TIME ZONE 'UTC' - $1 * interval '1 millisecond')::date
