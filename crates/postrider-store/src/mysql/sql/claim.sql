-- name: claim_lock
-- Locks the rows that a plain read found (ids, JSON), if they can still be claimed.
SELECT o.id, o.weight_bytes FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.queue = 0 AND o.status IN ('PENDING', 'FAILED')
FOR UPDATE /*!80000 OF o */ SKIP LOCKED

-- name: claim_waiting
-- Due rows, by their index: it provides the order, so rows that are not due are neither read nor
-- locked. NULL (fresh rows) is outside of the range.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at <= UTC_TIMESTAMP(6) AND status IN ('PENDING', 'FAILED')
ORDER BY next_retry_at, id LIMIT ?
FOR UPDATE SKIP LOCKED

-- name: claim_find_waiting
-- Rows of a share that are due: shares, share, maximum rows. A plain read: see claim_find_fresh.
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at <= UTC_TIMESTAMP(6) AND status IN ('PENDING', 'FAILED')
  AND id % ? = ?
ORDER BY next_retry_at, id LIMIT ?

-- name: claim_fresh
-- Fresh rows above the remembered low id. In this index they are adjacent, in the order of the
-- query: by primary key, a million waiting rows before them cost 1.3 s, and with a sort SKIP LOCKED
-- would lock all of them. Reads weight_bytes instead of the columns: the payload of a row over the
-- byte limit is not read.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING'
ORDER BY id LIMIT ?
FOR UPDATE SKIP LOCKED

-- name: claim_find_fresh
-- Fresh rows of a share: low id, shares, share, maximum rows. A plain read, because a locking read
-- would briefly lock rows of other shares, and their relays would skip those rows; see claim_lock.
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING' AND id % ? = ?
ORDER BY id LIMIT ?

-- name: claim_take
-- Takes ids (JSON) that earlier statements locked. The relay is last, because JSON_TABLE comes
-- first.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PROCESSING', o.locked_by = ?, o.locked_at = UTC_TIMESTAMP(6),
    o.version = {o.next version}, o.room = ''

-- name: claim_read
-- The claimed rows, after claim_take: the version is the new one.
SELECT {o.event}, o.locked_at AS claimed_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id

-- name: claim_suspect
-- One at a time, fewest crashes first (queue is crash_count from 2 on), so that an innocent event
-- that was in flight next to the one that crashes the relay is delivered first.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue >= 2 AND (next_retry_at IS NULL OR next_retry_at <= UTC_TIMESTAMP(6))
  AND status IN ('PENDING', 'FAILED')
ORDER BY queue, next_retry_at, id LIMIT 1
FOR UPDATE SKIP LOCKED

-- name: has_suspect
SELECT EXISTS (
    SELECT 1 FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue >= 2 AND (next_retry_at IS NULL OR next_retry_at <= UTC_TIMESTAMP(6))
      AND status IN ('PENDING', 'FAILED')
)

-- name: release
-- Ids, versions, delays in ms, errors (NULL: not tried), as JSON; the rows are locked.
-- next_retry_at is always set, because the scan for fresh rows has passed this id already.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', delay_ms BIGINT PATH '$[2]',
    error VARCHAR(500) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[3]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PENDING',
    o.next_retry_at = UTC_TIMESTAMP(6) + INTERVAL d.delay_ms * 1000 MICROSECOND,
    o.crash_count = CASE WHEN d.error IS NULL THEN o.crash_count ELSE 0 END,
    o.last_error = COALESCE(d.error, o.last_error),
    o.locked_by = NULL, o.locked_at = NULL, o.version = {o.next version},
    o.updated_at = CASE WHEN d.error IS NULL THEN o.updated_at ELSE UTC_TIMESTAMP(6) END
