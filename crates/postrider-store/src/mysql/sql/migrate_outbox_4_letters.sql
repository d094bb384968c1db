-- A dead letter keeps the expiry time of its event, like every other field. Runs only if the column
-- is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN IF NOT EXISTS expires_at DATETIME(6);
