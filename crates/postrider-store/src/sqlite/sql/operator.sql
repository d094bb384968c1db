-- What operator work says differently on SQLite; see operator/sql/.

-- name: audit_all
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT :operator, :action, :outbox, d.value ->> 0, d.value ->> 1 FROM json_each(:lines) AS d

-- name: dlq_resolve_all
UPDATE "{outbox}_dlq" AS o
SET resolved = true, resolved_at = {now}, resolved_by = :operator, resolution_note = :note,
    retried_as = d.value ->> 1, updated_at = {now}
FROM json_each(:letters) AS d
WHERE o.id = d.value ->> 0

-- name: dlq_fingerprint
UPDATE "{outbox}_dlq" AS o SET fingerprint = d.value ->> 1
FROM json_each(:kinds) AS d
WHERE o.id = d.value ->> 0 AND o.fingerprint = ''

-- name: replay
INSERT INTO "{child}" (
    {message but headers}, headers, redrive_count
)
SELECT {o.message but headers},
    json_set(coalesce(o.headers, '{}'), '$."postrider-replay"', :mark),
    min(max(o.redrive_count, 0), 999999) + 1
FROM json_each(:entries) AS d
CROSS JOIN "{outbox}_archive" AS o ON o.id = d.value ->> 0 AND o.event_id = d.value ->> 1
WHERE o.delivered_at = (
    SELECT max(a.delivered_at) FROM "{outbox}_archive" AS a
    WHERE a.id = o.id AND a.event_id = o.event_id
)
ORDER BY d.key
RETURNING id, event_id

-- name: canary
SELECT
    (SELECT count(*) FROM json_each(:events) AS d
        CROSS JOIN "{outbox}" AS o
        ON o.id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id)
    ) AS waiting,
    (SELECT count(*) FROM json_each(:events) AS d
        CROSS JOIN "{outbox}_dlq" AS o
        ON o.original_id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id)
    ) AS dead

-- name: ledger
-- There are no entries to be folded: writers are serial, and add to the ledger at once.
SELECT CASE WHEN minute < {ago :by_minute} THEN '1970-01-01T00:00:00.000Z'
        ELSE minute END AS shown,
    kind, sum(count) AS found, CAST(sum(id_sum) AS TEXT) AS id_sum FROM (
    SELECT minute, kind, count, id_sum FROM "{outbox}_ledger"
    UNION ALL
    SELECT substr(created_at, 1, 16) || ':00.000Z',
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, count(*), sum(id)
    FROM "{outbox}" GROUP BY 1, 2
) GROUP BY 1, 2 ORDER BY 1, 2

-- name: statistics
SELECT event_type,
    coalesce(sum(count) FILTER (WHERE kind = 'appended'), 0) AS appended,
    coalesce(sum(count) FILTER (WHERE kind = 'delivered'), 0) AS delivered,
    coalesce(sum(count) FILTER (WHERE kind = 'dead'), 0) AS dead
FROM "{outbox}_ledger" GROUP BY 1 ORDER BY 1

-- name: clean_inbox
DELETE FROM postrider_inbox WHERE (consumer, event_id) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each(:rows)
)

-- name: clean_inbox_ledger
-- Writers are serial: there is one row per consumer.
INSERT INTO postrider_inbox_ledger
    (consumer, received_count, ignored_count, applied_count, dead_count)
VALUES (:consumer, 0, 0, :applied, :dead)
ON CONFLICT (consumer) DO UPDATE
SET applied_count = applied_count + excluded.applied_count,
    dead_count = dead_count + excluded.dead_count

-- name: clean_inbox_letters
DELETE FROM postrider_inbox_dlq WHERE id IN (
    SELECT id FROM postrider_inbox_dlq
    WHERE resolved_at < {ago :age} AND (:consumer IS NULL OR consumer = :consumer)
    ORDER BY id LIMIT :limit
)
