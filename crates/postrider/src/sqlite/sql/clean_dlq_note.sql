-- $1 ids that clean_dlq_find.sql found. What they were stays known, so that a backup file does not
-- bring them back.
INSERT INTO "{outbox}_closed" (original_id, event_id)
SELECT original_id, event_id FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
ON CONFLICT (original_id, event_id) DO UPDATE SET closed_at = excluded.closed_at
