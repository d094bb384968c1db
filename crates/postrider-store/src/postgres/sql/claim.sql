-- name: claim
-- Reads fresh rows by primary key above the remembered low id ($3), and waiting rows by their
-- index: 2 ms with 1,000,000 rows not yet due, against 250 ms for "all due rows by id".
-- $1 relay, $2 epoch, $4 maximum rows, $5 maximum waiting rows, $6 maximum bytes, measured like
-- Event::weight_bytes, $7 shares, $8 the share.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
waiting AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS bytes
    FROM "{outbox}"
    WHERE next_retry_at <= now() AND status IN ('PENDING', 'FAILED') AND crash_count < 2
      AND ($7 = 1 OR id % $7 = $8)
    ORDER BY next_retry_at, id LIMIT $5
    FOR UPDATE SKIP LOCKED
),
fresh AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS bytes
    FROM "{outbox}"
    WHERE id > $3 AND status = 'PENDING' AND next_retry_at IS NULL
      AND ($7 = 1 OR id % $7 = $8)
    ORDER BY id LIMIT $4 - (SELECT count(*) FROM waiting)
    FOR UPDATE SKIP LOCKED
),
candidates AS (
    SELECT id, bytes, sum(bytes) OVER (ORDER BY id) AS total
    FROM (SELECT * FROM waiting UNION ALL SELECT * FROM fresh) AS found
),
-- Within the byte limit; the first row in any case.
taken AS MATERIALIZED (
    SELECT id FROM candidates
    WHERE (total <= $6 OR total = bytes) AND EXISTS (SELECT 1 FROM relay)
)
UPDATE "{outbox}" AS o
SET status = 'PROCESSING', locked_by = $1, locked_at = now(), version = {o.next version}
FROM taken WHERE o.id = taken.id
RETURNING {o.event}, now() AS claimed_at, o.ctid AS place, o.next_retry_at IS NULL AS is_fresh,
    (SELECT count(*) FROM waiting) AS waiting_found, (SELECT count(*) FROM fresh) AS fresh_found

-- name: claim_suspect
-- One at a time, fewest crashes first, so that an innocent event that was in flight next to the one
-- that crashes the relay is delivered first.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
taken AS MATERIALIZED (
    SELECT id FROM "{outbox}"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= now()) AND EXISTS (SELECT 1 FROM relay)
    ORDER BY crash_count, id LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE "{outbox}" AS o
SET status = 'PROCESSING', locked_by = $1, locked_at = now(), version = {o.next version}
FROM taken WHERE o.id = taken.id
RETURNING {o.event}, now() AS claimed_at, o.ctid AS place

-- name: has_suspect
SELECT EXISTS (
    SELECT 1 FROM "{outbox}"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= now())
)

-- name: release
-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 delays in ms, $6 errors (NULL: not tried), $7 event
-- ids. next_retry_at is always set, because the scan for fresh rows has passed this id already.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
released AS (
    UPDATE "{outbox}" AS o
    SET status = 'PENDING', dead_reason = NULL, next_retry_at = now() + d.delay_ms * interval '1 millisecond',
        crash_count = CASE WHEN d.error IS NULL THEN o.crash_count ELSE 0 END,
        last_error = coalesce(d.error, o.last_error),
        locked_by = NULL, locked_at = NULL, version = {o.next version},
        updated_at = CASE WHEN d.error IS NULL THEN o.updated_at ELSE now() END
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::uuid[])
        AS d (id, version, delay_ms, error, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM released) AS settled
