-- name: modes
SELECT name, claim, mode_epoch FROM postrider_outboxes ORDER BY name

-- name: set_mode
-- $1 outbox, $2 claim mode. The epoch increases only with a change.
UPDATE postrider_outboxes
SET mode_epoch = mode_epoch + (claim <> $2)::integer, claim = $2
WHERE name = $1
RETURNING claim, mode_epoch

-- name: lanes_of
-- Locks the lanes of an outbox: one relay at a time takes lanes. A later statement reads which
-- owners live: a join would see the state before the wait for the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = $1 ORDER BY lane FOR UPDATE

-- name: lanes_charge
-- Events that were alone in flight when the owner of their lane died: $1 ids. Sets next_retry_at,
-- so that mode `rows` treats them as suspects too.
UPDATE "{outbox}"
SET crash_count = least(greatest(crash_count, 2) + 1, 1000000), version = {next version},
    next_retry_at = coalesce(next_retry_at, now())
WHERE id = ANY ($1)

-- name: lanes_take
-- $1 outbox, $2 relay, $3 lanes, $4 whether the owner of each died.
UPDATE postrider_lanes AS l
SET owner = $2, version = l.version + 1, crash_count = l.crash_count + t.died::integer,
    suspect_id = CASE WHEN NOT t.died THEN l.suspect_id END
FROM unnest($3::smallint[], $4::boolean[]) AS t (lane, died)
WHERE l.outbox = $1 AND l.lane = t.lane

-- name: lane_owners
-- The owner of each lane.
SELECT lane, owner, crash_count FROM postrider_lanes WHERE outbox = $1 ORDER BY lane

-- name: lanes_release
-- $1 outbox, $2 relay, $3 lanes, $4 versions. If the relay takes a lane again after it sent the
-- release, the release finds another version, however late it arrives.
UPDATE postrider_lanes AS l SET owner = NULL, version = l.version + 1
FROM unnest($3::smallint[], $4::bigint[]) AS t (lane, version)
WHERE l.outbox = $1 AND l.lane = t.lane AND l.owner = $2 AND l.version = t.version

-- name: lanes_read_known
-- Like lanes_read, for many rows and keys ($5, $6): NOT IN builds a hash of each list once. With
-- few of them, it skips 100,000 rows in 41 ms instead of 26.
SELECT {event}, now() AS claimed_at, ctid AS place,
    postrider_lane(aggregate_type, aggregate_id) AS lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}"
WHERE id > $1 AND ($2::bigint >> postrider_lane(aggregate_type, aggregate_id)) & 1 <> 0 AND dead_reason IS NULL
  AND (aggregate_type, aggregate_id) NOT IN (SELECT * FROM unnest($5::text[], $6::text[]))
  AND id NOT IN (SELECT unnest($4::bigint[]))
ORDER BY id LIMIT $3

-- name: lanes_read_ids
-- Rows by id: $1 ascending.
SELECT {event}, now() AS claimed_at, ctid AS place,
    postrider_lane(aggregate_type, aggregate_id) AS lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}" WHERE id = ANY ($1) AND dead_reason IS NULL ORDER BY id

-- name: lanes_read_keys
-- Reads rows of some keys: $1 from, $2 to (inclusive), $3 maximum rows, $4 maximum bytes, $5 and $6
-- the keys. IS TRUE keeps the planner from using a join, which would compare each row with each
-- key. Unordered: a join does not guarantee an order, and the caller sorts the few rows that this
-- returns.
WITH weighed AS MATERIALIZED (
    SELECT id, weight, sum(weight) OVER (ORDER BY id) AS total FROM (
        SELECT id, octet_length(payload) + coalesce(octet_length(headers::text), 0) + 256 AS weight
        FROM "{outbox}"
        WHERE id >= $1 AND id <= $2 AND dead_reason IS NULL
          AND ((aggregate_type, aggregate_id) IN (SELECT * FROM unnest($5::text[], $6::text[]))) IS TRUE
        ORDER BY id LIMIT $3
    ) AS found
)
SELECT {o.event}, now() AS claimed_at, o.ctid AS place,
    postrider_lane(o.aggregate_type, o.aggregate_id) AS lane,
    CASE WHEN isfinite(o.next_retry_at)
        THEN (extract(epoch FROM o.next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM weighed AS w JOIN "{outbox}" AS o ON o.id = w.id
WHERE w.total - w.weight < $4

-- name: lanes_note_flight
-- $1 outbox, $2 relay, $3 lanes as bits, $4 id.
UPDATE postrider_lanes SET flight_to = greatest(flight_to, $4)
WHERE outbox = $1 AND owner = $2 AND ($3::bigint >> lane) & 1 = 1

-- name: lanes_note_suspect
-- $1 outbox, $2 relay, $3 lane, $4 id. One suspect at a time, over all lanes.
UPDATE postrider_lanes SET suspect_id = CASE WHEN lane = $3 THEN $4::bigint END
WHERE outbox = $1 AND owner = $2 AND (lane = $3 OR suspect_id IS NOT NULL)

-- name: lanes_clear
-- $1 outbox, $2 relay, $3 lanes as bits.
UPDATE postrider_lanes SET crash_count = 0, flight_to = NULL, suspect_id = NULL
WHERE outbox = $1 AND owner = $2 AND ($3::bigint >> lane) & 1 = 1

-- name: park_keys
-- $1 relay, $2 epoch, $3 outbox, $4 and $5 the keys.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
parked AS (
    INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
    SELECT $3, t.aggregate_type, t.aggregate_id
    FROM unnest($4::text[], $5::text[]) AS t (aggregate_type, aggregate_id)
    WHERE EXISTS (SELECT 1 FROM relay)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM parked) AS settled

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
        SELECT * FROM "{outbox}" WHERE next_retry_at IS NOT NULL AND dead_reason IS NULL
        ORDER BY next_retry_at, id LIMIT $3
    ) AS looked_at
    WHERE status = 'FAILED' OR last_error IS NOT NULL
    ORDER BY next_retry_at, id LIMIT $2
),
heads AS (
    SELECT DISTINCT ON (aggregate_type, aggregate_id) * FROM waiting
    ORDER BY aggregate_type, aggregate_id, id
),
keys AS MATERIALIZED (
    SELECT coalesce(h.aggregate_type, p.aggregate_type) AS aggregate_type,
        coalesce(h.aggregate_id, p.aggregate_id) AS aggregate_id,
        h.id AS head_id, h.last_error, coalesce(h.retry_count, 0) AS retry_count, h.next_retry_at,
        p.outbox IS NOT NULL AS parked
    FROM heads AS h
    FULL JOIN (SELECT * FROM postrider_parked_keys WHERE outbox = $1 LIMIT $2) AS p
        ON p.aggregate_type = h.aggregate_type AND p.aggregate_id = h.aggregate_id
),
scanned AS MATERIALIZED (
    SELECT id, aggregate_type, aggregate_id FROM "{outbox}"
    WHERE id >= (SELECT min(coalesce(head_id, 0)) FROM keys) ORDER BY id LIMIT $3
),
counted AS (
    SELECT s.aggregate_type, s.aggregate_id, count(*) AS waiting, min(s.id) AS first_id
    FROM scanned AS s JOIN keys AS k
        ON k.aggregate_type = s.aggregate_type AND k.aggregate_id = s.aggregate_id
    WHERE s.id > coalesce(k.head_id, 0)
    GROUP BY 1, 2
)
SELECT k.aggregate_type, k.aggregate_id, k.head_id, k.last_error, k.retry_count, k.next_retry_at,
    coalesce(c.waiting, 0) AS waiting, (SELECT count(*) FROM scanned) >= $3 AS more, k.parked
FROM keys AS k LEFT JOIN counted AS c
    ON c.aggregate_type = k.aggregate_type AND c.aggregate_id = k.aggregate_id
ORDER BY coalesce(k.head_id, c.first_id), k.aggregate_type, k.aggregate_id LIMIT $2

-- name: lanes_read
-- Reads rows of the lanes, due or not: $1 after, $2 lanes as bits, $3 maximum rows. Leaves out rows
-- that the owner knows ($4 ids) and rows of keys that wait anyway (from $5 on, one line each).
-- There are few of both, so they are compared one by one. `<> 0`, because with `= 1` the planner
-- expects one row in 200 and uses parallel workers to read a large table.
SELECT {event}, now() AS claimed_at, ctid AS place,
    postrider_lane(aggregate_type, aggregate_id) AS lane,
    CASE WHEN isfinite(next_retry_at)
        THEN (extract(epoch FROM next_retry_at - now()) * 1000)::bigint END AS due_in_ms,
    status = 'PROCESSING' AS busy
FROM "{outbox}"
WHERE id > $1 AND ($2::bigint >> postrider_lane(aggregate_type, aggregate_id)) & 1 <> 0 AND dead_reason IS NULL
  AND id <> ALL ($4::bigint[]){hidden}
ORDER BY id LIMIT $3
