-- What operator work says differently on PostgreSQL; see operator/sql/.

-- name: audit_all
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT :operator, :action, :outbox, d.line ->> 0, d.line ->> 1
FROM jsonb_array_elements(:lines::jsonb) AS d (line)

-- name: dlq_by_event
-- Found by their index first: sessions of the relay avoid sorts, and would walk all dead letters by
-- id instead (40 ms with 100,000).
WITH found AS MATERIALIZED (SELECT * FROM "{outbox}_dlq" WHERE event_id = :event_id)
SELECT {letter}, NULL AS payload
FROM found ORDER BY id DESC LIMIT :limit

-- name: dlq_resolve_all
UPDATE "{outbox}_dlq" AS o
SET resolved = true, resolved_at = now(), resolved_by = :operator, resolution_note = :note,
    retried_as = (d.letter ->> 1)::bigint, updated_at = now()
FROM jsonb_array_elements(:letters::jsonb) AS d (letter)
WHERE o.id = (d.letter ->> 0)::bigint

-- name: dlq_fingerprint
UPDATE "{outbox}_dlq" AS o SET fingerprint = d.kind ->> 1
FROM jsonb_array_elements(:kinds::jsonb) AS d (kind)
WHERE o.id = (d.kind ->> 0)::bigint AND o.fingerprint = ''

-- name: replay
-- The entries are read once: read again for each event, 500 of them took 400 ms instead of 50.
INSERT INTO "{child}" (
    {message but headers}, headers, redrive_count
)
WITH found AS MATERIALIZED (
    SELECT (d.entry ->> 0)::bigint AS id, (d.entry ->> 1)::uuid AS event_id
    FROM jsonb_array_elements(:entries::jsonb) AS d (entry)
)
SELECT {o.message but headers},
    coalesce(o.headers, '{}') || jsonb_build_object('postrider-replay', :mark),
    least(greatest(o.redrive_count, 0), 999999) + 1
FROM "{outbox}_archive" AS o
WHERE o.id = ANY (ARRAY(SELECT id FROM found))
  AND (o.id, o.event_id) IN (SELECT id, event_id FROM found)
  AND o.delivered_at = (
      SELECT max(a.delivered_at) FROM "{outbox}_archive" AS a
      WHERE a.id = o.id AND a.event_id = o.event_id
  )
ORDER BY o.id
RETURNING id, event_id

-- name: canary
WITH sent AS MATERIALIZED (
    SELECT (d.event ->> 0)::bigint AS id, (d.event ->> 1)::uuid AS event_id
    FROM jsonb_array_elements(:events::jsonb) AS d (event)
)
SELECT
    (SELECT count(*) FROM sent AS d
        JOIN "{outbox}" AS o ON o.id = d.id AND o.event_id = coalesce(d.event_id, o.event_id)
    ) AS waiting,
    (SELECT count(*) FROM sent AS d
        JOIN "{outbox}_dlq" AS o
            ON o.original_id = d.id AND o.event_id = coalesce(d.event_id, o.event_id)
    ) AS dead

-- name: ledger_settings
-- The one statement that reads everything: here a sequential scan is the right plan.
SET LOCAL enable_seqscan = on

-- name: ledger
WITH recorded AS (
    SELECT minute, kind, sum(count) AS count, sum(id_sum) AS id_sum FROM (
        SELECT minute, kind, count, id_sum FROM "{outbox}_ledger"
        UNION ALL SELECT minute, kind, count, id_sum FROM "{outbox}_ledger_entries"
    ) AS entries GROUP BY 1, 2
    UNION ALL
    SELECT date_trunc('minute', created_at),
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, count(*), sum(id)
    FROM "{outbox}" GROUP BY 1, 2
)
SELECT CASE WHEN minute < {ago :by_minute} THEN to_timestamp(0) ELSE minute END AS shown,
    kind, sum(count)::bigint AS found, sum(id_sum)::text AS id_sum
FROM recorded GROUP BY 1, 2 ORDER BY 1, 2

-- name: inbox_ledger_settings
-- It reads everything: here a sequential scan is the right plan.
SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on

-- name: clean_inbox
DELETE FROM postrider_inbox WHERE (consumer, event_id) IN (
    SELECT d.found ->> 0, d.found ->> 1 FROM jsonb_array_elements(:rows::jsonb) AS d (found)
)

-- name: clean_inbox_letters
-- ANY of an array: of a subquery with a limit, the planner may ask again for each row.
DELETE FROM postrider_inbox_dlq WHERE id = ANY (ARRAY(
    SELECT id FROM postrider_inbox_dlq
    WHERE resolved_at < {ago :age} AND (:consumer IS NULL OR consumer = :consumer)
    ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
))
