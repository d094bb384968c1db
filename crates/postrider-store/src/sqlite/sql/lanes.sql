-- name: modes
SELECT name, claim, mode_epoch FROM postrider_outboxes ORDER BY name

-- name: set_mode
-- $1 outbox, $2 claim mode. The epoch increases only with a change.
UPDATE postrider_outboxes SET mode_epoch = mode_epoch + (claim <> $2), claim = $2
WHERE name = $1
RETURNING claim, mode_epoch

-- name: lanes_of
-- The lanes of an outbox with the state of their owners.
SELECT l.lane, l.owner, l.version, l.crash_count, l.flight_to, l.suspect_id,
    r.id IS NOT NULL AND NOT r.fenced AS owner_lives
FROM postrider_lanes AS l LEFT JOIN postrider_relays AS r ON r.id = l.owner
WHERE l.outbox = $1 ORDER BY l.lane

-- name: lanes_charge
-- Events that were alone in flight when the owner of their lane died: $1 ids. Sets next_retry_at,
-- so that mode `rows` treats them as suspects too.
UPDATE "{outbox}"
SET crash_count = min(max(crash_count, 2) + 1, 1000000), version = {next version},
    next_retry_at = coalesce(next_retry_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
WHERE id IN (SELECT value FROM json_each($1))

-- name: lanes_take
-- $1 outbox, $2 relay, $3 a JSON array of lanes, each with whether its owner died.
UPDATE postrider_lanes AS l
SET owner = $2, version = l.version + 1, crash_count = l.crash_count + (t.value ->> 1),
    suspect_id = CASE WHEN NOT (t.value ->> 1) THEN l.suspect_id END
FROM json_each($3) AS t
WHERE l.outbox = $1 AND l.lane = t.value ->> 0

-- name: lane_owners
-- The owner of each lane.
SELECT lane, owner, crash_count FROM postrider_lanes WHERE outbox = $1 ORDER BY lane

-- name: lanes_release
-- $1 outbox, $2 relay, $3 a JSON array of lanes and versions. If the relay takes a lane again after
-- it sent the release, the release finds another version, however late it arrives.
UPDATE postrider_lanes AS l SET owner = NULL, version = l.version + 1
FROM json_each($3) AS t
WHERE l.outbox = $1 AND l.lane = t.value ->> 0 AND l.owner = $2 AND l.version = t.value ->> 1

-- name: lanes_find
-- The rows to read, due or not: $1 after, $2 maximum rows, $3 hidden keys, $4 known ids. Returns
-- ids and bytes (measured like Event::weight_bytes), so that rows over the byte limit are not read
-- at all. Also returns the last id of the same snapshot: SQLite has one writer at a time, so
-- nothing at or below it can still commit.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{outbox}'), 0) AS last_id,
    (SELECT json_group_array(json_array(id, bytes)) FROM (
        SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
        FROM "{outbox}" NOT INDEXED
        WHERE id > $1 AND dead_reason IS NULL
          AND (aggregate_type, aggregate_id) NOT IN (
              SELECT value ->> 0, value ->> 1 FROM json_each($3)
          )
          AND id NOT IN (SELECT value FROM json_each($4))
        ORDER BY id LIMIT $2
    )) AS found

-- name: lanes_read
-- Rows by id, due or not: $1 ids ascending. No lane, because this store has none. The time is a
-- subquery of its own, which is evaluated once instead of once per row.
SELECT {o.event}, (SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')) AS claimed_at,
    CASE WHEN o.next_retry_at IS NOT NULL THEN
        CAST((julianday(o.next_retry_at) - julianday('now')) * 86400000 AS INTEGER)
    END AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM json_each($1) AS c CROSS JOIN "{outbox}" AS o ON o.id = c.value
WHERE o.dead_reason IS NULL

-- name: lanes_find_keys
-- The rows of some keys to read: $1 from, $2 to (inclusive), $3 maximum rows, $4 keys.
SELECT json_group_array(json_array(id, bytes)) AS found FROM (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" NOT INDEXED
    WHERE id >= $1 AND id <= $2 AND dead_reason IS NULL
      AND (aggregate_type, aggregate_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each($4))
    ORDER BY id LIMIT $3
)

-- name: lanes_note_flight
-- $1 outbox, $2 relay, $3 lanes as bits, $4 id.
UPDATE postrider_lanes SET flight_to = max(coalesce(flight_to, 0), $4)
WHERE outbox = $1 AND owner = $2 AND ($3 >> lane) & 1 = 1

-- name: lanes_note_suspect
-- $1 outbox, $2 relay, $3 lane, $4 id. One suspect at a time, over all lanes.
UPDATE postrider_lanes SET suspect_id = CASE WHEN lane = $3 THEN $4 END
WHERE outbox = $1 AND owner = $2 AND (lane = $3 OR suspect_id IS NOT NULL)

-- name: lanes_clear
-- $1 outbox, $2 relay, $3 lanes as bits.
UPDATE postrider_lanes SET crash_count = 0, flight_to = NULL, suspect_id = NULL
WHERE outbox = $1 AND owner = $2 AND ($3 >> lane) & 1 = 1

-- name: park_keys
-- $1 outbox, $2 a JSON array of keys.
INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
SELECT $1, value ->> 0, value ->> 1 FROM json_each($2) WHERE true
ON CONFLICT DO NOTHING

-- name: parked_keys
SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = $1

-- name: release_key
DELETE FROM postrider_parked_keys WHERE outbox = $1 AND aggregate_type = $2 AND aggregate_id = $3

-- name: blocked_keys
-- $1 outbox, $2 maximum keys, $3 maximum rows of the search and of the count. The head of a key is
-- its oldest event that was tried and waits; the events behind it are counted in one pass over the
-- table.
WITH waiting AS MATERIALIZED (
    SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at
    FROM (
        -- Millions of rows may wait without having been tried.
        SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at, status
        FROM "{outbox}" INDEXED BY "{outbox}_waiting"
        WHERE next_retry_at IS NOT NULL AND dead_reason IS NULL
        ORDER BY next_retry_at, id LIMIT $3
    ) AS looked_at
    WHERE status = 'FAILED' OR last_error IS NOT NULL
    ORDER BY next_retry_at, id LIMIT $2
),
-- With min(), SQLite takes the other columns from the row that has the minimum.
heads AS (
    SELECT aggregate_type, aggregate_id, min(id) AS id, last_error, retry_count, next_retry_at
    FROM waiting GROUP BY 1, 2
),
parked AS (
    SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = $1 LIMIT $2
),
keys AS MATERIALIZED (
    SELECT coalesce(h.aggregate_type, p.aggregate_type) AS aggregate_type,
        coalesce(h.aggregate_id, p.aggregate_id) AS aggregate_id,
        h.id AS head_id, h.last_error, coalesce(h.retry_count, 0) AS retry_count, h.next_retry_at,
        p.aggregate_type IS NOT NULL AS parked
    FROM heads AS h FULL JOIN parked AS p
        ON p.aggregate_type = h.aggregate_type AND p.aggregate_id = h.aggregate_id
),
scanned AS MATERIALIZED (
    SELECT id, aggregate_type, aggregate_id FROM "{outbox}" NOT INDEXED
    WHERE id >= (SELECT min(coalesce(head_id, 0)) FROM keys) ORDER BY id LIMIT $3
),
counted AS MATERIALIZED (
    SELECT s.aggregate_type, s.aggregate_id, count(*) AS waiting, min(s.id) AS first_id
    FROM scanned AS s CROSS JOIN keys AS k
        ON k.aggregate_type = s.aggregate_type AND k.aggregate_id = s.aggregate_id
    WHERE s.id > coalesce(k.head_id, 0)
    GROUP BY 1, 2
)
SELECT k.aggregate_type, k.aggregate_id, k.head_id, k.last_error, k.retry_count, k.next_retry_at,
    coalesce(c.waiting, 0) AS waiting, (SELECT count(*) FROM scanned) >= $3 AS more, k.parked
FROM keys AS k LEFT JOIN counted AS c
    ON c.aggregate_type = k.aggregate_type AND c.aggregate_id = k.aggregate_id
ORDER BY coalesce(k.head_id, c.first_id) IS NULL, coalesce(k.head_id, c.first_id),
    k.aggregate_type, k.aggregate_id
LIMIT $2
