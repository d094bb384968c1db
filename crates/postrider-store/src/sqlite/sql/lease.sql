-- name: register
INSERT INTO postrider_relays (id, host, version, serving) VALUES ($1, $2, $3, $4) RETURNING epoch

-- name: heartbeat
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = $3
WHERE id = $1 AND epoch = $2 AND NOT fenced

-- name: pulses
SELECT id, epoch, heartbeat, fenced, host,
    CAST((julianday('now') - julianday(started_at)) * 86400000 AS INTEGER) AS age_ms,
    serving
FROM postrider_relays ORDER BY id

-- name: fence_lock
-- The immediate transaction around this statement waits for running settles. After the commit of
-- the new epoch, no later settle finds a row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = $1

-- name: fence
UPDATE postrider_relays SET epoch = epoch + 1, fenced = true WHERE id = $1

-- name: retire
DELETE FROM postrider_relays WHERE id = $1 AND epoch = $2

-- name: remove_relay
DELETE FROM postrider_relays WHERE id = $1 AND fenced
