-- Oldest first, after $11 up to $12, without payloads.
SELECT id, error_message, redrive_count, (extract(epoch FROM now() - failed_at) * 1000)::bigint AS age_ms
FROM "{outbox}_dlq"
WHERE {filter} AND NOT resolved AND id > $11 AND id <= $12
ORDER BY id LIMIT $13
