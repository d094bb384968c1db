-- Oldest first, after $11 up to $12.
SELECT id, octet_length(payload)::bigint FROM "{outbox}_dlq"
WHERE {filter} AND NOT resolved AND id > $11 AND id <= $12
ORDER BY id LIMIT $13
