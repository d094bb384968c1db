-- Locked, so that upkeep does not move the row between this look and the import.
SELECT id FROM `{outbox}` WHERE id = ? FOR UPDATE
