-- Oldest first, after an id up to another.
SELECT id, event_id, CAST(LENGTH(payload) AS SIGNED) FROM `{outbox}_archive` FORCE INDEX (PRIMARY)
WHERE {filter} AND id > ? AND id <= ?
ORDER BY id LIMIT ?
