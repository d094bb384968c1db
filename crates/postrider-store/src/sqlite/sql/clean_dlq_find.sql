-- Resolved dead letters only: unresolved ones are never cleaned up.
SELECT id FROM "{outbox}_dlq"
WHERE resolved AND resolved_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
LIMIT $2
