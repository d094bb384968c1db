-- name: batch_upsert
-- Field and count of each row, sorted by field.
INSERT INTO `{table}` (`{key}`, `{count}`) VALUES {rows}
ON DUPLICATE KEY UPDATE `{count}` = COALESCE(`{count}`, 0) + VALUES(`{count}`)

-- name: batch_target
-- Table; table, key; table, count; table, key. Whether table and columns are there, and the key is
-- unique: alone in a unique index. One that has only the beginning of the key makes others of it the
-- same, whatever other index there is.
SELECT
    (SELECT COUNT(*) FROM information_schema.TABLES
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?),
    (SELECT COUNT(*) FROM information_schema.COLUMNS
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = ?),
    (SELECT COUNT(*) FROM information_schema.COLUMNS
     WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = ?),
    (SELECT COALESCE(MIN(whole), 0) FROM (
        SELECT COUNT(SUB_PART) = 0 AS whole FROM information_schema.STATISTICS
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND NON_UNIQUE = 0
        GROUP BY INDEX_NAME HAVING COUNT(*) = 1 AND MAX(COLUMN_NAME) = ?) AS alone)

-- name: fan_out_known
-- Of the ids (JSON), those whose request id the child remembers. It belongs to another event: one
-- of another parent, or one so old that the parent has forgotten it. The copy must not be refused
-- as a repeat, so it counts as retried. A separate statement, because one that reads the child's
-- tables cannot also fire its trigger.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
STRAIGHT_JOIN `{child}_keys` AS k ON k.request_id = o.request_id

-- name: fan_out_copy
-- Ids (JSON, ascending), locked, each with 1 if fan_out_known.sql found it, else 0. A copy keeps
-- the event id and the time of its original; its state is its own.
INSERT INTO `{child}` (
    {message},
    redrive_count, max_retries, expires_at, created_at
)
SELECT {o.message}, GREATEST(o.redrive_count, d.known), o.max_retries, o.expires_at, o.created_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', known INT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ORDER BY o.id

-- name: settle_delivered_archive
-- Ids (JSON), locked; `remove` deletes them from the outbox in the same transaction.
INSERT INTO `{outbox}_archive` (
    id, {message}, retry_count, redrive_count, created_at, delivered_at, response
)
SELECT o.id, {o.message}, o.retry_count, o.redrive_count, o.created_at, UTC_TIMESTAMP(6),
    o.response
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id

-- name: held
-- Locks the rows of a batch that are unchanged since they were claimed or read: ids and versions
-- (JSON, ids ascending), relay. In mode `rows` the relay holds them, in `lanes` no relay does. The
-- caller compares the event ids: in the JSON every statement of a settle would parse them.
SELECT o.id, o.event_type, o.created_at, o.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND (o.locked_by = ? OR o.locked_by IS NULL)
FOR UPDATE /*!80000 OF o */

-- name: record
-- Adds a batch to the ledger: kind, then minutes, types, counts and sums of ids (JSON) of the rows
-- that the same transaction has locked and removes.
INSERT INTO `{outbox}_ledger_entries` (minute, event_type, kind, count, id_sum)
SELECT d.minute, d.event_type, ?, d.count, d.id_sum
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    minute DATETIME PATH '$[0]',
    event_type VARCHAR(200) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]',
    count BIGINT PATH '$[2]',
    id_sum DECIMAL(38, 0) PATH '$[3]'
)) AS d

-- name: remove
-- The last step for rows that leave the outbox: ids (JSON), locked and counted in the ledger.
DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id

-- name: settle_response
-- Ids, versions, answers or nothing, as JSON; the rows are locked. Runs before the rows are
-- removed, in the same transaction, so that the destination's answer is archived with the row.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    response MEDIUMTEXT CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[2]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.response = d.response

-- name: settle_failed_note
-- Runs before settle_failed, which counts the attempt. The relay is in the JSON, because in mode
-- `lanes` no row names it.
INSERT INTO `{outbox}_attempts` (event_id, attempt, error, took_ms, relay_id)
SELECT o.event_id, o.retry_count + 1, d.error, d.took_ms, d.relay_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    error VARCHAR(500) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[3]',
    took_ms BIGINT PATH '$[4]',
    relay_id VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[5]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id

-- name: settle_failed_trim
-- Keeps the last 20 attempts of each event; runs before settle_failed counts this one.
DELETE a FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id AND o.retry_count >= 20
STRAIGHT_JOIN `{outbox}_attempts` AS a FORCE INDEX (`{outbox}_attempts_event`)
    ON a.event_id = o.event_id AND a.attempt <= o.retry_count - 19

-- name: settle_failed
-- Ids, versions, delays in ms, errors, durations in ms, relay, as JSON; the rows are locked. The
-- next attempt is due on the database's clock.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', delay_ms BIGINT PATH '$[2]',
    error VARCHAR(500) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[3]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'FAILED', o.retry_count = LEAST(o.retry_count + 1, 1000000), o.crash_count = 0,
    o.last_error = d.error,
    o.next_retry_at = UTC_TIMESTAMP(6) + INTERVAL d.delay_ms * 1000 MICROSECOND,
    o.locked_by = NULL, o.locked_at = NULL, o.version = {o.next version},
    o.updated_at = UTC_TIMESTAMP(6)

-- name: settle_dead
-- Ids, versions, reasons, messages, details, attempted (0 or 1), fingerprints, as JSON; the rows
-- are locked.
-- A row leaves the outbox only together with its dead letter. A dead letter that exists already is
-- not changed. An expiry time that no program can read (a zero date) becomes NULL.
INSERT INTO `{outbox}_dlq` (
    original_id, {message}, reason, error_message, error_detail, failed_at, retry_count,
    max_retries, redrive_count, event_created_at, expires_at, fingerprint
)
SELECT o.id, {o.message}, d.reason, d.message, d.detail, UTC_TIMESTAMP(6),
    o.retry_count + d.attempted, o.max_retries, o.redrive_count, o.created_at,
    CASE WHEN o.expires_at >= '1000-01-01' THEN o.expires_at END, d.fingerprint
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    reason VARCHAR(20) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[2]',
    message VARCHAR(1000) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[3]',
    detail TEXT CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[4]',
    attempted INT PATH '$[5]',
    fingerprint VARCHAR(16) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[6]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
ON DUPLICATE KEY UPDATE `{outbox}_dlq`.original_id = `{outbox}_dlq`.original_id

-- name: mark_dead
-- The dead-letter table could not take the event. The row stays until maintenance moves it.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    reason VARCHAR(20) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[2]',
    message VARCHAR(1000) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[3]',
    attempted INT PATH '$[5]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'DEAD_LETTER', o.dead_reason = d.reason, o.last_error = LEFT(d.message, 500),
    o.retry_count = LEAST(o.retry_count + d.attempted, 1000000), o.crash_count = 0,
    o.locked_by = NULL, o.locked_at = NULL, o.version = {o.next version},
    o.updated_at = UTC_TIMESTAMP(6)
