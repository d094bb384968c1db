-- Oldest first, after $12 up to $13.
SELECT id, event_id::text FROM "{outbox}_archive"
WHERE {filter} AND id > $12 AND id <= $13
ORDER BY id LIMIT $14
