-- Resolved ones only: an unresolved dead letter is never cleaned up.
DELETE FROM "{outbox}_dlq" WHERE id IN (
    SELECT id FROM "{outbox}_dlq"
    WHERE resolved AND resolved_at < now() - $1 * interval '1 millisecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
