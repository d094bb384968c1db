-- Resolved dead letters only: unresolved ones are never cleaned up. Deleted ones are remembered, so
-- that importing a backup file does not restore them.
WITH gone AS (
    DELETE FROM "{outbox}_dlq" WHERE id IN (
        SELECT id FROM "{outbox}_dlq"
        WHERE resolved AND resolved_at < now() - $1 * interval '1 millisecond'
        LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    RETURNING original_id, event_id
)
INSERT INTO "{outbox}_closed" (original_id, event_id)
SELECT original_id, event_id FROM gone ORDER BY original_id, event_id
ON CONFLICT (original_id, event_id) DO UPDATE SET closed_at = excluded.closed_at
