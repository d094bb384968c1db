-- Locked, so that upkeep does not move the row between this look and the import.
SELECT id FROM "{outbox}" WHERE id = $1 AND event_id = $2::uuid FOR UPDATE
