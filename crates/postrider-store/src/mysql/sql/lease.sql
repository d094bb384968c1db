-- name: living
SELECT id FROM postrider_relays WHERE fenced = 0

-- name: clean_locks_find
-- Locks that were last used before yesterday and that no session holds.
SELECT name FROM postrider_locks FORCE INDEX (postrider_locks_age)
WHERE used_on < UTC_DATE() - INTERVAL 1 DAY
ORDER BY used_on LIMIT ?
FOR UPDATE SKIP LOCKED

-- name: clean_locks
-- Names (JSON), locked by clean_locks_find. A session that waits for one of them inserts it again.
DELETE l FROM JSON_TABLE(?, '$[*]' COLUMNS (
    name VARCHAR(200) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$'
)) AS d STRAIGHT_JOIN postrider_locks AS l FORCE INDEX (PRIMARY) ON l.name = d.name

-- name: register
INSERT INTO postrider_relays (id, host, version, serving, epoch) VALUES (?, ?, ?, ?, ?)

-- name: heartbeat
-- Waits for running settles of this relay: milliseconds, and at most the lock wait timeout.
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = ?
WHERE id = ? AND epoch = ? AND fenced = 0

-- name: pulses
SELECT id, epoch, heartbeat, fenced, host,
    TIMESTAMPDIFF(MICROSECOND, started_at, UTC_TIMESTAMP(6)) DIV 1000 AS age_ms, serving
FROM postrider_relays ORDER BY id

-- name: fence_lock
-- FOR UPDATE waits for running settles of that relay, which hold the row in share mode. After the
-- commit of the new epoch, no later settle finds a row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = ? FOR UPDATE

-- name: fence
UPDATE postrider_relays SET epoch = epoch + 1, fenced = 1 WHERE id = ?

-- name: retire
DELETE FROM postrider_relays WHERE id = ? AND epoch = ?

-- name: lease_hold
-- The share lock does the fencing: with a mere check of the epoch, a settle would still write after
-- a take-over that commits in between.
SELECT epoch FROM postrider_relays WHERE id = ? AND epoch = ? LOCK IN SHARE MODE

-- name: remove_relay
DELETE FROM postrider_relays WHERE id = ? AND fenced
