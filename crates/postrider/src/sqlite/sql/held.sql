-- Whether the relay's lease still holds: $1 relay, $2 epoch. Inside the immediate transaction that
-- writes, so nobody can take over between this look and the write.
SELECT EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)
