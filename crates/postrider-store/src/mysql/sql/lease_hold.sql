-- The share lock does the fencing: with a mere check of the epoch, a settle would still write after
-- a take-over that commits in between.
SELECT epoch FROM postrider_relays WHERE id = ? AND epoch = ? LOCK IN SHARE MODE
