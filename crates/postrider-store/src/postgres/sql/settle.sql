-- name: batch_upsert
-- $1 fields, sorted; $2 counts. {type} is the type of the key's column, as the catalogue spells it.
INSERT INTO "{table}" AS target ("{key}", "{count}")
SELECT entry.field::{type}, entry.amount FROM unnest($1::text[], $2::bigint[]) AS entry (field, amount)
ON CONFLICT ("{key}") DO UPDATE SET "{count}" = COALESCE(target."{count}", 0) + excluded."{count}"

-- name: batch_target
-- $1 table, $2 key, $3 count. The types of the two columns, and whether the key is unique. Types are
-- without their length: a cast to varchar(20) would cut a longer key, and count it for another one.
SELECT
    (SELECT format_type(a.atttypid, -1) FROM pg_attribute AS a
     WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attname = $2 AND NOT a.attisdropped),
    (SELECT format_type(a.atttypid, -1) FROM pg_attribute AS a
     WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attname = $3 AND NOT a.attisdropped),
    EXISTS (SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a
                ON a.attrelid = i.indrelid AND a.attname = $2 AND i.indkey[0] = a.attnum
            WHERE i.indrelid = to_regclass(quote_ident($1)) AND i.indisunique AND i.indpred IS NULL
              AND i.indnkeyatts = 1),
    to_regclass(quote_ident($1)) IS NOT NULL

-- name: settle_response
-- Runs before the rows are removed, in the same transaction, so that the destination's answer is
-- archived with the row. $1 relay, $2 epoch, $3 ids, $4 versions, $5 answers, $6 event ids.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
)
UPDATE "{outbox}" AS o SET response = d.response
FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::uuid[])
    AS d (id, version, response, event_id)
WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
  AND EXISTS (SELECT 1 FROM relay)

-- name: settle_delivered_placed
-- Deletes rows by their physical positions when they were read: looking up each by its id took
-- twice as long. A position may hold another row by now, so the row's event id must be the one
-- expected for its id. (Searching for the id in a sorted array took 1 µs more per row.) The relay
-- passes the ledger's lines, because it has read these rows; its caller rolls back unless exactly
-- the requested rows are gone.
-- $1 relay, $2 epoch, $3 positions, $4 first id, $5 last id, $6 event ids from the first id to the
-- last, $7 version of all of them; for the ledger $8 minutes, $9 event types, $10 counts, $11 sums
-- of ids.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT minute, event_type, 'delivered', count, id_sum::numeric
    FROM unnest($8::timestamptz[], $9::text[], $10::bigint[], $11::text[])
        AS lines (minute, event_type, count, id_sum)
)
DELETE FROM "{outbox}"
WHERE ctid = ANY ($3) AND version = $7 AND (locked_by = $1 OR locked_by IS NULL)
  -- A subscript must fit an integer, and the planner chooses the order of conditions.
  AND CASE WHEN id BETWEEN $4 AND $5
      THEN event_id = ($6::uuid[])[(id - $4)::integer + 1] END
  AND EXISTS (SELECT 1 FROM relay)

-- name: settle_delivered_delete
-- $1 relay, $2 epoch, $3 ids ascending, $4 versions, $5 event ids. The share lock on the relay's
-- row does the fencing: with a mere check of the epoch, a settle would still write after a
-- take-over that commits in between. The version shows whether the row is unchanged since it was
-- claimed or read; in mode `rows` this relay holds it, in `lanes` no relay does. The event id shows
-- whether it is the same event: ids may be reused, and most versions are 0.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::uuid[]) AS d (id, version, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id, o.event_type, o.created_at
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'delivered', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled

-- name: settle_delivered_archive
-- Like settle_delivered_delete, but keeps the rows in the archive.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::uuid[]) AS d (id, version, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.*
),
archived AS (
    INSERT INTO "{outbox}_archive" (
        id, {message}, retry_count, redrive_count, created_at, delivered_at,
        response
    )
    SELECT id, {message}, retry_count, redrive_count, created_at, now(), response
    FROM gone
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'delivered', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled

-- name: fan_out_hold
-- Locks the rows that are unchanged since they were claimed or read: $1 relay, $2 ids ascending, $3
-- versions, $4 event ids.
SELECT o.id FROM unnest($2::bigint[], $3::bigint[], $4::uuid[]) AS d (id, version, event_id)
JOIN "{outbox}" AS o ON o.id = d.id
WHERE o.version = d.version AND o.event_id = d.event_id
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
FOR UPDATE OF o

-- name: fan_out_copy
-- $1 ids ascending, locked. A copy keeps the event id and the time of its original; its state is
-- its own. A request id that the child remembers belongs to another event: one of another parent,
-- or one so old that the parent has forgotten it. The copy must not be skipped as a repeat, so it
-- counts as retried.
INSERT INTO "{child}" (
    {message},
    redrive_count, max_retries, expires_at, created_at
)
SELECT {o.message},
    CASE WHEN EXISTS (SELECT 1 FROM "{child}_keys" AS k WHERE k.request_id = o.request_id)
        THEN greatest(o.redrive_count, 1) ELSE o.redrive_count END,
    o.max_retries, o.expires_at, o.created_at
FROM "{outbox}" AS o WHERE o.id = ANY ($1) ORDER BY o.id

-- name: settle_failed
-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 delays in ms, $6 errors, $7 durations in ms, $8 event
-- ids. The next attempt is due on the database's clock. Keeps the last 20 attempts of each event.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
failed AS (
    UPDATE "{outbox}" AS o
    SET status = 'FAILED', dead_reason = NULL, retry_count = least(o.retry_count + 1, 1000000), crash_count = 0, last_error = f.error,
        next_retry_at = now() + f.delay_ms * interval '1 millisecond',
        locked_by = NULL, locked_at = NULL, updated_at = now(),
        version = {o.next version}
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[],
        $8::uuid[]) AS f (id, version, delay_ms, error, took_ms, event_id)
    WHERE o.id = f.id AND o.version = f.version AND o.event_id = f.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.event_id, o.retry_count, f.error, f.took_ms
),
noted AS (
    INSERT INTO "{outbox}_attempts" (event_id, attempt, error, took_ms, relay_id)
    SELECT event_id, retry_count, error, took_ms, $1 FROM failed
),
trimmed AS (
    DELETE FROM "{outbox}_attempts" AS a USING failed AS f
    WHERE f.retry_count > 20 AND a.event_id = f.event_id AND a.attempt <= f.retry_count - 20
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM failed) AS settled

-- name: settle_dead
-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 reasons, $6 messages, $7 details, $8 attempted, $9
-- fingerprints, $10 event ids.
-- A row leaves the outbox only together with its dead letter. An expiry time that no program can
-- read (infinity) becomes NULL.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[],
        $9::text[], $10::uuid[])
        AS d (id, version, reason, message, detail, attempted, fingerprint, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.*, d.reason, d.message, d.detail, d.attempted, d.fingerprint
),
moved AS (
    INSERT INTO "{outbox}_dlq" (
        original_id, {message}, reason, error_message, error_detail, failed_at, retry_count,
        max_retries, redrive_count, event_created_at, expires_at, fingerprint
    )
    SELECT id, {message}, reason, message, detail, now(), retry_count + attempted::integer,
        max_retries, redrive_count, created_at,
        CASE WHEN expires_at BETWEEN '0001-01-01Z' AND '9999-12-31Z' THEN expires_at END, fingerprint
    FROM gone
    ON CONFLICT (original_id, event_id) DO NOTHING
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'dead', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled

-- name: mark_dead
-- The dead-letter table could not take the event. The row stays until maintenance moves it.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
marked AS (
    UPDATE "{outbox}" AS o
    SET status = 'DEAD_LETTER', dead_reason = d.reason, last_error = left(d.message, 500),
        retry_count = least(o.retry_count + d.attempted::integer, 1000000), crash_count = 0,
        locked_by = NULL, locked_at = NULL, version = {o.next version}, updated_at = now()
    FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[],
        $9::text[], $10::uuid[])
        AS d (id, version, reason, message, detail, attempted, fingerprint, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM marked) AS settled
