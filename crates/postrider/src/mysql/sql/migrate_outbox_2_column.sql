-- The kind of a dead letter's error, from the program; '' until upkeep has computed it. Run only
-- where the column is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN fingerprint VARCHAR(16) NOT NULL DEFAULT '';
