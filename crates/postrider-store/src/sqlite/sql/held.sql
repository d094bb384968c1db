-- Returns whether the relay still holds its lease: $1 relay, $2 epoch. Runs inside the immediate
-- transaction that writes, so no other relay can take over between this check and the write.
SELECT EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)
