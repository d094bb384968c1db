-- Oldest first, after an id up to another.
SELECT id, event_id FROM `{outbox}_archive` FORCE INDEX (PRIMARY)
WHERE {filter} AND id > ? AND id <= ?
ORDER BY id LIMIT ?
