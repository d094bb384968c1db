-- A non-key update: it does not wait for settles, which hold the row FOR KEY SHARE.
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = $3
WHERE id = $1 AND epoch = $2 AND NOT fenced
