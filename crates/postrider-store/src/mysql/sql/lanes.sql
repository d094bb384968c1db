-- name: modes
SELECT name, claim, mode_epoch FROM postrider_outboxes ORDER BY name

-- name: set_mode
-- Claim mode twice, outbox. The epoch increases only with a change; it is computed from the old
-- mode, because assignments run in the order in which they are written.
UPDATE postrider_outboxes SET mode_epoch = mode_epoch + (claim <> ?), claim = ? WHERE name = ?

-- name: mode
SELECT claim, mode_epoch FROM postrider_outboxes WHERE name = ?

-- name: lanes_of
-- Locks the lanes of an outbox: one relay at a time takes lanes. A later statement reads which
-- owners live, so that its result is not older than the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = ? ORDER BY lane FOR UPDATE

-- name: lanes_charge
-- Events that were alone in flight when the owner of their lane died: ids (JSON). Sets
-- next_retry_at, so that mode `rows` treats them as suspects too.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.crash_count = LEAST(GREATEST(o.crash_count, 2) + 1, 1000000), o.version = {o.next version},
    o.next_retry_at = COALESCE(o.next_retry_at, UTC_TIMESTAMP(6))

-- name: lanes_take
-- Lanes, each with whether its owner died (0 or 1), as JSON; relay; outbox.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', died INT PATH '$[1]')) AS t
STRAIGHT_JOIN postrider_lanes AS l FORCE INDEX (PRIMARY) ON l.lane = t.lane
SET l.owner = ?, l.version = l.version + 1, l.crash_count = l.crash_count + t.died,
    l.suspect_id = CASE WHEN t.died = 0 THEN l.suspect_id END
WHERE l.outbox = ?

-- name: lane_owners
-- The owner of each lane.
SELECT lane, owner, crash_count FROM postrider_lanes WHERE outbox = ? ORDER BY lane

-- name: lanes_release
-- Lanes and versions, as JSON; outbox; relay. If the relay takes a lane again after it sent the
-- release, the release finds another version, however late it arrives.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', version BIGINT PATH '$[1]')) AS t
STRAIGHT_JOIN postrider_lanes AS l FORCE INDEX (PRIMARY) ON l.lane = t.lane
SET l.owner = NULL, l.version = l.version + 1
WHERE l.outbox = ? AND l.owner = ? AND l.version = t.version

-- name: lanes_find
-- The rows of the lanes to read: after, lanes as bits, maximum rows. Reads weight_bytes instead of
-- the columns: rows over the byte limit are not read at all.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND (? >> lane) & 1 = 1 AND dead_reason IS NULL
ORDER BY id LIMIT ?

-- name: lanes_find_known
-- Like lanes_find, without rows that the owner knows (ids) and rows of keys that wait anyway, both
-- as JSON: after, lanes as bits, keys, ids, maximum rows. A session setting makes NOT IN build a
-- hash of each list once on MariaDB; 100,000 rows behind two keys are skipped in 100 ms. MySQL has
-- no such setting, and would scan the list for each row (5,000 ids: 25 s), unless the list is a
-- table without repeats, which it looks up by an index (10 ms).
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND (? >> lane) & 1 = 1 AND dead_reason IS NULL
  AND (aggregate_type, aggregate_id) NOT IN (
      SELECT aggregate_type, aggregate_id FROM
      /*!80000 (SELECT DISTINCT aggregate_type, aggregate_id FROM */ JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
      )) AS hidden /*!80000 ) AS each_once */
  )
  AND id NOT IN (
      SELECT id FROM /*!80000 (SELECT DISTINCT id FROM */
      JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS known /*!80000 ) AS each_once */
  )
ORDER BY id LIMIT ?

-- name: lanes_read
-- Rows by id (JSON, ascending), due or not.
SELECT {o.event}, UTC_TIMESTAMP(6) AS claimed_at, o.lane,
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), o.next_retry_at) DIV 1000 AS due_in_ms,
    o.status = 'PROCESSING' AS busy
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.dead_reason IS NULL

-- name: lanes_find_keys
-- The rows of some keys to read: from, to (inclusive), keys (JSON), maximum rows. IS TRUE keeps the
-- planner from using a join, which would compare each row with each key.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id >= ? AND id <= ? AND dead_reason IS NULL
  AND ((aggregate_type, aggregate_id) IN (
      SELECT aggregate_type, aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
      )) AS wanted
  )) IS TRUE
ORDER BY id LIMIT ?

-- name: lanes_note_flight
-- Id, outbox, relay, lanes as bits.
UPDATE postrider_lanes SET flight_to = GREATEST(COALESCE(flight_to, 0), ?)
WHERE outbox = ? AND owner = ? AND (? >> lane) & 1 = 1

-- name: lanes_note_suspect
-- Lane, id, outbox, relay, lane. One suspect at a time, over all lanes.
UPDATE postrider_lanes SET suspect_id = CASE WHEN lane = ? THEN ? END
WHERE outbox = ? AND owner = ? AND (lane = ? OR suspect_id IS NOT NULL)

-- name: lanes_clear
-- Outbox, relay, lanes as bits.
UPDATE postrider_lanes SET crash_count = 0, flight_to = NULL, suspect_id = NULL
WHERE outbox = ? AND owner = ? AND (? >> lane) & 1 = 1

-- name: park_keys
-- Outbox, keys (JSON). A key that is parked already is not changed (INSERT IGNORE would hide other
-- errors too).
INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
SELECT ?, t.aggregate_type, t.aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    aggregate_type VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
    aggregate_id VARCHAR(255) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
)) AS t
ON DUPLICATE KEY UPDATE postrider_parked_keys.outbox = postrider_parked_keys.outbox

-- name: parked_keys
SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = ?

-- name: release_key
DELETE FROM postrider_parked_keys WHERE outbox = ? AND aggregate_type = ? AND aggregate_id = ?

-- name: parked_keys_some
SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = ? LIMIT ?

-- name: blocked_heads
-- Rows that were tried and wait, by their index: maximum rows to read (millions may wait without
-- having been tried), maximum rows to return. The oldest row of a key is its head.
SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at
FROM (
    SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at, status, queue
    FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue >= 0 AND next_retry_at IS NOT NULL
    ORDER BY queue, next_retry_at, id LIMIT ?
) AS looked_at
WHERE status = 'FAILED' OR last_error IS NOT NULL
ORDER BY queue, next_retry_at, id LIMIT ?

-- name: blocked_range
-- The range that a count may read: from, maximum rows.
SELECT COUNT(*), MAX(id) FROM (
    SELECT id FROM `{outbox}` FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT ?
) AS scanned

-- name: blocked_count
-- Counts the events that wait behind keys: keys (JSON, with the head's id or 0), from, to, keys
-- again. The first condition on the keys is a hash lookup, which drops the rows of all other keys
-- before they are compared one by one.
SELECT CAST(k.position AS SIGNED) AS position, COUNT(*) AS waiting, MIN(o.id) AS first_id
FROM `{outbox}` AS o FORCE INDEX (PRIMARY)
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (
    position FOR ORDINALITY,
    aggregate_type VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
    aggregate_id VARCHAR(255) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]',
    head_id BIGINT PATH '$[2]'
)) AS k ON k.aggregate_type = o.aggregate_type AND k.aggregate_id = o.aggregate_id
    AND o.id > k.head_id
WHERE o.id >= ? AND o.id <= ?
  AND ((o.aggregate_type, o.aggregate_id) IN (
      SELECT aggregate_type, aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4
              COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
      )) AS wanted
  )) IS TRUE
GROUP BY k.position
