-- The share lock is what fences: a bare check of the epoch would still write after a take-over that
-- commits meanwhile.
SELECT epoch FROM postrider_relays WHERE id = ? AND epoch = ? LOCK IN SHARE MODE
