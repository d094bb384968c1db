-- name: column
-- The kind of a dead letter's error, computed by the program; '' until maintenance has computed it.
-- SQLite has no IF NOT EXISTS here: runs only if the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';

-- name: indexes
-- Dead letters without a fingerprint yet. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_unseen" ON "{outbox}_dlq" (id) WHERE fingerprint = '';
-- A row id alone is not unique: dead letters imported from another database may have the same ones.
CREATE UNIQUE INDEX IF NOT EXISTS "{outbox}_dlq_identity" ON "{outbox}_dlq" (original_id, event_id);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_event" ON "{outbox}_dlq" (event_id);
-- Covers all columns that the groups of unresolved dead letters need.
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_groups"
    ON "{outbox}_dlq" (id, fingerprint, event_type, failed_at) WHERE NOT resolved;
