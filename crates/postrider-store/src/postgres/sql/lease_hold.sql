-- $1 relay, $2 epoch. The share lock does the fencing: a take-over waits for it.
SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
