-- $1 relay, $2 epoch. The share lock is what fences: no take-over passes it.
SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
