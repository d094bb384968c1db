-- Locked, so that upkeep does not move the row between this look and the import.
SELECT id FROM `{outbox}` WHERE id = ? AND event_id = ? FOR UPDATE
