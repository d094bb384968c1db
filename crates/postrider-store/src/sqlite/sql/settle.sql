-- name: batch_upsert
-- $1 fields and counts as JSON, sorted. SQLite turns a sum that is too large into a fraction; such a
-- row is left out here, and the caller sees that one is missing.
INSERT INTO "{table}" ("{key}", "{count}")
SELECT value ->> 0, value ->> 1 FROM json_each($1) WHERE true
ON CONFLICT ("{key}") DO UPDATE SET "{count}" = COALESCE("{count}", 0) + excluded."{count}"
WHERE typeof(COALESCE("{count}", 0) + excluded."{count}") = 'integer'

-- name: fan_out_copy
-- $1 ids that settle_find.sql found. A copy keeps the event id and the time of its original; its
-- state is its own. A request id that the child remembers belongs to another event: one of another
-- parent, or one so old that the parent has forgotten it. The copy must not be skipped as a repeat,
-- so it counts as retried.
INSERT INTO "{child}" (
    {message},
    redrive_count, max_retries, expires_at, created_at
)
SELECT {o.message},
    CASE WHEN EXISTS (SELECT 1 FROM "{child}_keys" AS k WHERE k.request_id = o.request_id)
        THEN max(o.redrive_count, 1) ELSE o.redrive_count END,
    o.max_retries, o.expires_at, o.created_at
FROM "{outbox}" AS o WHERE o.id IN (SELECT value FROM json_each($1)) ORDER BY o.id

-- name: settle_failed_note
-- Runs before settle_failed.sql, which changes the version that shows whether this relay still
-- holds a row. $1 relay, $2 a JSON array of failures.
INSERT INTO "{outbox}_attempts" (event_id, attempt, error, took_ms, relay_id)
SELECT o.event_id, o.retry_count + 1, f.value ->> 'error', f.value ->> 'took_ms', $1
FROM json_each($2) AS f CROSS JOIN "{outbox}" AS o ON o.id = f.value ->> 'id'
WHERE o.version = f.value ->> 'version' AND o.event_id = f.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)

-- name: settle_failed
-- $1 relay, $2 a JSON array of failures. The next attempt is due on the database's clock.
UPDATE "{outbox}" AS o
SET status = 'FAILED', dead_reason = NULL, retry_count = min(o.retry_count + 1, 1000000), crash_count = 0,
    last_error = f.value ->> 'error',
    next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', f.value ->> 'delay'),
    locked_by = NULL, locked_at = NULL, version = {o.next version},
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM json_each($2) AS f
WHERE o.id = f.value ->> 'id' AND o.version = f.value ->> 'version'
  AND o.event_id = f.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)

-- name: settle_failed_trim
-- Keeps the last 20 attempts of each event. $1 a JSON array of failures.
DELETE FROM "{outbox}_attempts" WHERE rowid IN (
    SELECT a.rowid
    FROM json_each($1) AS f
    CROSS JOIN "{outbox}" AS o ON o.id = f.value ->> 'id' AND o.event_id = f.value ->> 'event_id'
    CROSS JOIN "{outbox}_attempts" AS a ON a.event_id = o.event_id
    WHERE o.retry_count > 20 AND a.attempt <= o.retry_count - 20
)

-- name: settle_dead
-- $1 ids that settle_find.sql found, $2 a JSON array of deaths. A row leaves the outbox only
-- together with its dead letter. An invalid expiry time becomes NULL.
INSERT INTO "{outbox}_dlq" (
    original_id, {message}, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at, fingerprint
)
SELECT o.id, {o.message}, d.value ->> 'reason', d.value ->> 'message', d.value ->> 'detail',
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), o.retry_count + (d.value ->> 'attempted'),
    o.max_retries, o.redrive_count, o.created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', o.expires_at), d.value ->> 'fingerprint'
FROM json_each($2) AS d CROSS JOIN "{outbox}" AS o
    ON o.id = d.value ->> 'id' AND o.event_id = d.value ->> 'event_id'
WHERE o.id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO NOTHING

-- name: mark_dead
-- The dead-letter table could not take the event. The row stays until maintenance moves it. $1
-- relay, $2 a JSON array of deaths.
UPDATE "{outbox}" AS o
SET status = 'DEAD_LETTER', dead_reason = d.value ->> 'reason',
    last_error = substr(d.value ->> 'message', 1, 500),
    retry_count = min(o.retry_count + (d.value ->> 'attempted'), 1000000), crash_count = 0,
    locked_by = NULL, locked_at = NULL, version = {o.next version},
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM json_each($2) AS d
WHERE o.id = d.value ->> 'id' AND o.version = d.value ->> 'version'
  AND o.event_id = d.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)

-- name: held
-- Returns whether the relay still holds its lease: $1 relay, $2 epoch. Runs inside the immediate
-- transaction that writes, so no other relay can take over between this check and the write.
SELECT EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)

-- name: settle_find
-- The rows that are unchanged since they were claimed or read: $1 relay, $2 a JSON object that maps
-- an id to its version and event id, in one text that is compared at once. In mode `rows` the relay
-- holds them, in `lanes` no relay does. The same transaction then adds exactly these rows to the
-- ledger and removes them.
SELECT json_group_array(o.id) AS ids
FROM json_each($2) AS d CROSS JOIN "{outbox}" AS o ON o.id = CAST(d.key AS INTEGER)
WHERE d.value = o.version || ' ' || o.event_id AND (o.locked_by = $1 OR o.locked_by IS NULL)

-- name: settle_response
-- Runs before the rows are removed, in the same transaction, so that the destination's answer is
-- archived with the row. $1 ids that settle_find.sql found, $2 a JSON array of ids and answers.
UPDATE "{outbox}" AS o SET response = d.value ->> 1
FROM json_each($2) AS d
WHERE o.id = d.value ->> 0 AND o.id IN (SELECT value FROM json_each($1))

-- name: settle_delivered_archive
-- $1 ids that settle_find.sql found. The same transaction removes them from the outbox.
INSERT INTO "{outbox}_archive" (
    id, {message}, retry_count, redrive_count, created_at, delivered_at,
    response
)
SELECT id, {message}, retry_count, redrive_count, created_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    response
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))

-- name: record
-- Adds the rows that the same transaction removes to the ledger: $1 their ids, $2 the kind. SQLite
-- has one writer at a time, so the sums are updated at once and there is nothing to fold.
INSERT INTO "{outbox}_ledger" (minute, event_type, kind, count, id_sum)
SELECT substr(created_at, 1, 16) || ':00.000Z', event_type, $2, count(*), sum(id)
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1)) GROUP BY 1, 2
ON CONFLICT (minute, event_type, kind)
DO UPDATE SET count = count + excluded.count, id_sum = id_sum + excluded.id_sum

-- name: remove
-- $1 ids that settle_find.sql or move_marked_find.sql found; they are in the ledger already.
DELETE FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))
