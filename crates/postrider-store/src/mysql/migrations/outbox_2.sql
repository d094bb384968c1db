-- name: column
-- The kind of a dead letter's error, computed by the program; '' until maintenance has computed it.
-- Runs only if the column is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN fingerprint VARCHAR(16) NOT NULL DEFAULT '';

-- name: indexes
-- Runs only if one of these indexes is missing. The last line is for MariaDB alone: MySQL never had
-- the old index.
CREATE INDEX /*M! IF NOT EXISTS */ `{outbox}_dlq_kind` ON `{outbox}_dlq` (fingerprint);
-- Covers all columns that the groups of unresolved dead letters need.
CREATE INDEX /*M! IF NOT EXISTS */ `{outbox}_dlq_groups`
    ON `{outbox}_dlq` (resolved, id, fingerprint, event_type, failed_at);
CREATE INDEX /*M! IF NOT EXISTS */ `{outbox}_dlq_event` ON `{outbox}_dlq` (event_id);
-- A row id alone is not unique: dead letters imported from another database may have the same ones.
CREATE UNIQUE INDEX /*M! IF NOT EXISTS */ `{outbox}_dlq_identity` ON `{outbox}_dlq` (original_id, event_id);
/*M! DROP INDEX IF EXISTS `{outbox}_dlq_original` ON `{outbox}_dlq` */;
