-- Waits for settles of this relay that are under way: milliseconds, and at most the lock wait.
UPDATE postrider_relays SET heartbeat = heartbeat + 1, serving = ?
WHERE id = ? AND epoch = ? AND fenced = 0
