-- A dead letter keeps the time at which its event expires, as every other field of it. Run only where
-- the column is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN IF NOT EXISTS expires_at DATETIME(6);
