-- The destination's answer, for events whose answer is kept. Runs only if it is missing: an ALTER
-- waits for every open transaction on the table.
ALTER TABLE `{outbox}` ADD COLUMN /*M! IF NOT EXISTS */ response MEDIUMTEXT;
ALTER TABLE `{outbox}_archive` ADD COLUMN /*M! IF NOT EXISTS */ response MEDIUMTEXT;
