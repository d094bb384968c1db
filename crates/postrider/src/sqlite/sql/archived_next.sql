-- Oldest first, after $13 up to $14.
SELECT id, event_id, octet_length(payload) FROM "{outbox}_archive"
WHERE {filter} AND id > $13 AND id <= $14
ORDER BY id LIMIT $15
