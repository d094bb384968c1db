-- Oldest first, after $11 up to $12, without payloads.
SELECT id, error_message, redrive_count, CAST((julianday('now') - julianday(failed_at)) * 86400000 AS INTEGER) AS age_ms
FROM "{outbox}_dlq"
WHERE {filter} AND NOT resolved AND id > $11 AND id <= $12
ORDER BY id LIMIT $13
