-- The kind of a dead letter's error, computed by the program; '' until maintenance has computed it.
ALTER TABLE "{outbox}_dlq" ADD COLUMN IF NOT EXISTS fingerprint varchar(16) NOT NULL DEFAULT '';
-- Rows without a fingerprint yet. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_unseen" ON "{outbox}_dlq" (id) WHERE fingerprint = '';
-- A row id alone is not unique: dead letters imported from another database may have the same ones.
ALTER TABLE "{outbox}_dlq" DROP CONSTRAINT IF EXISTS "{outbox}_dlq_original_id_key";
CREATE UNIQUE INDEX IF NOT EXISTS "{outbox}_dlq_identity" ON "{outbox}_dlq" (original_id, event_id);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_event" ON "{outbox}_dlq" (event_id);
-- Covers all columns that the groups and the count of unresolved dead letters need, so that neither
-- reads the table.
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_groups"
    ON "{outbox}_dlq" (id) INCLUDE (fingerprint, event_type, failed_at) WHERE NOT resolved;
