-- name: lease_hold
-- $1 relay, $2 epoch. The share lock does the fencing: a take-over waits for it.
SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE

-- name: living
SELECT id FROM postrider_relays WHERE NOT fenced

-- name: register
INSERT INTO postrider_relays (id, host, version, serving) VALUES ($1, $2, $3, $4) RETURNING epoch

-- name: heartbeat
-- A non-key update: it does not wait for settles, which hold the row FOR KEY SHARE.
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = $3
WHERE id = $1 AND epoch = $2 AND NOT fenced

-- name: pulses
SELECT id, epoch, heartbeat, fenced, host,
       (extract(epoch FROM now() - started_at) * 1000)::bigint AS age_ms, serving
FROM postrider_relays ORDER BY id

-- name: fence_lock
-- FOR UPDATE waits for running settles of that relay, which hold FOR KEY SHARE. After the commit of
-- the new epoch, no later settle finds a row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = $1 FOR UPDATE

-- name: fence
UPDATE postrider_relays SET epoch = epoch + 1, fenced = true WHERE id = $1

-- name: retire
DELETE FROM postrider_relays WHERE id = $1 AND epoch = $2

-- name: remove_relay
DELETE FROM postrider_relays WHERE id = $1 AND fenced
