-- name: claim_find
-- Reads fresh rows by primary key above the remembered low id ($3), and waiting rows by their
-- index. Returns ids and bytes of both (measured like Event::weight_bytes), so that payloads are
-- read after the write lock is released.
-- $1 relay, $2 epoch, $4 maximum rows, $5 maximum waiting rows, $6 maximum ids that the scan may
-- pass, $7 shares, $8 the share.
-- No row: the relay was fenced. INDEXED BY: an error is better than a scan of a million rows.
WITH waiting AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" INDEXED BY "{outbox}_waiting"
    WHERE next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      AND status IN ('PENDING', 'FAILED') AND crash_count < 2 AND id % $7 = $8
    ORDER BY next_retry_at, id LIMIT $5
),
-- The next id that exists, so that a gap of delivered ids costs nothing.
start AS MATERIALIZED (
    SELECT min(id) AS id FROM "{outbox}" WHERE id > $3
),
fresh AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" NOT INDEXED
    WHERE id >= (SELECT id FROM start) AND id < (SELECT id FROM start) + $6
      AND status = 'PENDING' AND next_retry_at IS NULL AND id % $7 = $8
    ORDER BY id LIMIT $4 - (SELECT count(*) FROM waiting)
)
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{outbox}'), 0) AS last_id,
    (SELECT id FROM start) AS start,
    (SELECT json_group_array(json_array(id, bytes)) FROM waiting) AS waiting,
    (SELECT json_group_array(json_array(id, bytes)) FROM fresh) AS fresh
WHERE EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)

-- name: claim
-- Takes the rows that claim_find.sql found in the same transaction: $1 relay, $2 their ids.
UPDATE "{outbox}"
SET status = 'PROCESSING', locked_by = $1, locked_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    version = {next version}
WHERE id IN (SELECT value FROM json_each($2))

-- name: claim_read
-- The rows of a claim, after its commit: $1 relay, $2 ids ascending. Does not return rows that
-- recovery has taken away since.
SELECT {o.event}, o.locked_at AS claimed_at
FROM json_each($2) AS c CROSS JOIN "{outbox}" AS o ON o.id = c.value
WHERE o.locked_by = $1 AND o.status = 'PROCESSING'

-- name: claim_suspect
-- One at a time, fewest crashes first, so that an innocent event that was in flight next to the one
-- that crashes the relay is delivered first.
UPDATE "{outbox}"
SET status = 'PROCESSING', locked_by = $1, locked_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    version = {next version}
WHERE id = (
    SELECT id FROM "{outbox}" INDEXED BY "{outbox}_suspects"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
      AND EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)
    ORDER BY crash_count, id LIMIT 1
)
RETURNING {event}, locked_at AS claimed_at

-- name: has_suspect
SELECT EXISTS (
    SELECT 1 FROM "{outbox}" INDEXED BY "{outbox}_suspects"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)

-- name: release
-- $1 relay, $2 a JSON array of deferrals (error NULL: not tried). next_retry_at is always set,
-- because the scan for fresh rows has passed this id already.
UPDATE "{outbox}" AS o
SET status = 'PENDING', dead_reason = NULL,
    next_retry_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', d.value ->> 'delay'),
    crash_count = CASE WHEN d.value ->> 'error' IS NULL THEN o.crash_count ELSE 0 END,
    last_error = coalesce(d.value ->> 'error', o.last_error),
    locked_by = NULL, locked_at = NULL, version = {o.next version},
    updated_at = CASE WHEN d.value ->> 'error' IS NULL THEN o.updated_at
        ELSE strftime('%Y-%m-%dT%H:%M:%fZ', 'now') END
FROM json_each($2) AS d
WHERE o.id = d.value ->> 'id' AND o.version = d.value ->> 'version'
  AND o.event_id = d.value ->> 'event_id'
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
