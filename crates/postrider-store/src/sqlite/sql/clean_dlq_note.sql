-- Remembers the dead letters that clean_dlq_find.sql found ($1 ids), so that importing a backup
-- file does not restore them.
INSERT INTO "{outbox}_closed" (original_id, event_id)
SELECT original_id, event_id FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO UPDATE SET closed_at = excluded.closed_at
