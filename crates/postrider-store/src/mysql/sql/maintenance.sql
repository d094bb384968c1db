-- name: release_lost_find
-- One step of a walk over the table: relay, from (excluded), to (included). A plain read: see
-- recover_find.
SELECT id FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE status = 'PROCESSING' AND locked_by = ? AND id > ? AND id <= ?
ORDER BY id

-- name: release_lost
-- Ids of release_lost_find that are not in flight (JSON), relay.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PENDING', o.next_retry_at = UTC_TIMESTAMP(6),
    o.locked_by = NULL, o.locked_at = NULL, o.version = {o.next version}
WHERE o.status = 'PROCESSING' AND o.locked_by = ?

-- name: recover_find
-- One step of a walk over the table: from (excluded), to (included), dead relays, live relays (both
-- JSON), stall time in ms. A plain read: a locking read would briefly lock every row, and a claim
-- would skip fresh rows until its next sweep.
SELECT id, version FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND id <= ? AND status = 'PROCESSING'
  AND (JSON_CONTAINS(?, JSON_QUOTE(locked_by))
       OR ((locked_by IS NULL OR NOT JSON_CONTAINS(?, JSON_QUOTE(locked_by)))
           AND (locked_at IS NULL
                OR locked_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
                OR locked_at > UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)))
ORDER BY id

-- name: marked_rows
SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = -1 AND status = 'DEAD_LETTER' LIMIT ?

-- name: fold_ledger
-- Sums up entries (ids as JSON, locked by fold_ledger_find).
INSERT INTO `{outbox}_ledger` (minute, event_type, kind, count, id_sum)
SELECT * FROM (
    SELECT e.minute, e.event_type, e.kind, SUM(e.count) AS added, SUM(e.id_sum) AS id_sum_added
    FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
    STRAIGHT_JOIN `{outbox}_ledger_entries` AS e FORCE INDEX (PRIMARY) ON e.id = d.id
    GROUP BY e.minute, e.event_type, e.kind
) AS s ORDER BY minute, event_type, kind
ON DUPLICATE KEY UPDATE
    `{outbox}_ledger`.count = `{outbox}_ledger`.count + s.added,
    `{outbox}_ledger`.id_sum = `{outbox}_ledger`.id_sum + s.id_sum_added

-- name: fold_ledger_delete
-- In the same transaction as fold_ledger, so that a reader's snapshot has each entry exactly once.
DELETE e FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_ledger_entries` AS e FORCE INDEX (PRIMARY) ON e.id = d.id

-- name: fold_ledger_find
-- Entries of transactions that have not committed are locked, and are skipped.
SELECT id FROM `{outbox}_ledger_entries` ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED

-- name: clean_closed
DELETE FROM `{outbox}_closed` WHERE closed_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
ORDER BY closed_at LIMIT ?

-- name: clean_archive
-- Retention in ms, maximum rows. Only the derived table can skip locked rows; a DELETE cannot.
DELETE a FROM (
    SELECT id, delivered_at FROM `{outbox}_archive` FORCE INDEX (`{outbox}_archive_age`)
    WHERE delivered_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY delivered_at LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{outbox}_archive` AS a FORCE INDEX (PRIMARY)
ON a.id = old.id AND a.delivered_at = old.delivered_at

-- name: clean_attempts
DELETE a FROM (
    SELECT id FROM `{outbox}_attempts` FORCE INDEX (`{outbox}_attempts_age`)
    WHERE failed_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY failed_at LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{outbox}_attempts` AS a FORCE INDEX (PRIMARY) ON a.id = old.id

-- name: fold_old_minutes
-- Sums up lines (as JSON, locked by fold_old_minutes_find) by type and kind.
INSERT INTO `{outbox}_ledger` (minute, event_type, kind, count, id_sum)
SELECT * FROM (
    SELECT CAST('1970-01-01' AS DATETIME) AS minute, b.event_type, b.kind, SUM(b.count) AS added,
        SUM(b.id_sum) AS id_sum_added
    FROM JSON_TABLE(?, '$[*]' COLUMNS (
        minute DATETIME PATH '$[0]',
        event_type VARCHAR(200) CHARACTER SET utf8mb4
            COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]',
        kind VARCHAR(10) CHARACTER SET utf8mb4
            COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[2]'
    )) AS d STRAIGHT_JOIN `{outbox}_ledger` AS b FORCE INDEX (PRIMARY)
        ON b.minute = d.minute AND b.event_type = d.event_type AND b.kind = d.kind
    GROUP BY b.event_type, b.kind
) AS s ORDER BY event_type, kind
ON DUPLICATE KEY UPDATE
    `{outbox}_ledger`.count = `{outbox}_ledger`.count + s.added,
    `{outbox}_ledger`.id_sum = `{outbox}_ledger`.id_sum + s.id_sum_added

-- name: fold_old_minutes_delete
-- In the same transaction as fold_old_minutes, so that a reader's snapshot has each line exactly
-- once.
DELETE b FROM JSON_TABLE(?, '$[*]' COLUMNS (
    minute DATETIME PATH '$[0]',
    event_type VARCHAR(200) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]',
    kind VARCHAR(10) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[2]'
)) AS d STRAIGHT_JOIN `{outbox}_ledger` AS b FORCE INDEX (PRIMARY)
    ON b.minute = d.minute AND b.event_type = d.event_type AND b.kind = d.kind

-- name: fold_old_minutes_find
-- Lines of minutes older than an age in ms, except their sum; maximum rows.
SELECT CAST(minute AS CHAR), event_type, kind FROM `{outbox}_ledger`
WHERE minute > '1970-01-01' AND minute < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
ORDER BY minute, event_type, kind LIMIT ? FOR UPDATE SKIP LOCKED

-- name: recover_lock
-- Locks the rows of recover_find (ids and versions, JSON) that are unchanged. SKIP LOCKED: a row
-- that its owner is settling is not stalled.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND o.status = 'PROCESSING'
FOR UPDATE /*!80000 OF o */ SKIP LOCKED

-- name: recover
-- Ids (JSON) locked by recover_lock. A suspect waits longer after each crash: a relay that starts
-- takes suspects first, and if relays are killed right after their start, an innocent one would be
-- blamed.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PENDING',
    o.next_retry_at = UTC_TIMESTAMP(6) + INTERVAL
        CASE WHEN o.crash_count >= 2 THEN 5 * LEAST(o.crash_count - 1, 3) ELSE 0 END SECOND,
    o.crash_count = LEAST(o.crash_count + 1, 1000000),
    o.locked_by = NULL, o.locked_at = NULL, o.version = {o.next version}

-- name: clean_dlq_find
-- Resolved dead letters only: unresolved ones are never cleaned up. Age in ms, maximum rows.
SELECT id FROM `{outbox}_dlq` FORCE INDEX (`{outbox}_dlq_resolved`)
WHERE resolved = 1 AND resolved_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
ORDER BY resolved_at LIMIT ? FOR UPDATE SKIP LOCKED

-- name: clean_dlq_note
-- Remembers the dead letters that clean_dlq_find locked (ids as JSON), so that importing a backup
-- file does not restore them.
INSERT INTO `{outbox}_closed` (original_id, event_id)
SELECT a.original_id, a.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS a FORCE INDEX (PRIMARY) ON a.id = d.id
ON DUPLICATE KEY UPDATE closed_at = UTC_TIMESTAMP(6)

-- name: clean_dlq
-- Ids (JSON), locked by clean_dlq_find.
DELETE a FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS a FORCE INDEX (PRIMARY) ON a.id = d.id

-- name: clean_keys_find
-- Request ids past their window whose event has left the outbox: window in ms, maximum rows.
SELECT k.request_id FROM `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys_age`)
WHERE k.created_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.id = k.id)
ORDER BY k.created_at LIMIT ?
FOR UPDATE SKIP LOCKED

-- name: clean_keys
-- Request ids (JSON), locked by clean_keys_find. Not combined with it: a DELETE that reads the
-- outbox takes share locks there, and a claim would skip the rows.
DELETE k FROM JSON_TABLE(?, '$[*]' COLUMNS (
    request_id VARCHAR(255) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$'
)) AS d STRAIGHT_JOIN `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys`)
    ON k.request_id = d.request_id

-- name: move_marked_find
SELECT id, event_type, created_at, event_id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = -1 AND status = 'DEAD_LETTER' AND id BETWEEN ? AND ? LIMIT ? FOR UPDATE SKIP LOCKED

-- name: move_marked
-- Moves rows marked DEAD_LETTER (ids as JSON, locked by move_marked_find) to the dead letters. If
-- an import from the backup file was faster, the dead letter exists and is not changed (the update
-- changes nothing; INSERT IGNORE would hide other errors too).
INSERT INTO `{outbox}_dlq` (
    original_id, {message}, reason, error_message, failed_at, retry_count, max_retries,
    redrive_count, event_created_at, expires_at
)
SELECT o.id, {o.message}, o.dead_reason, COALESCE(o.last_error, ''), o.updated_at,
    o.retry_count, o.max_retries, o.redrive_count, o.created_at,
    CASE WHEN o.expires_at >= '1000-01-01' THEN o.expires_at END
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ON DUPLICATE KEY UPDATE `{outbox}_dlq`.original_id = `{outbox}_dlq`.original_id
