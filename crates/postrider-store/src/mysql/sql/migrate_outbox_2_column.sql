-- The kind of a dead letter's error, computed by the program; '' until maintenance has computed it.
-- Runs only if the column is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN fingerprint VARCHAR(16) NOT NULL DEFAULT '';
