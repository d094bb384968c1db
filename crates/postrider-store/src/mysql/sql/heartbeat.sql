-- Waits for running settles of this relay: milliseconds, and at most the lock wait timeout.
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = ?
WHERE id = ? AND epoch = ? AND fenced = 0
