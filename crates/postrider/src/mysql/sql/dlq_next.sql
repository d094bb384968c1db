-- Oldest first, after an id up to another.
SELECT id, CAST(LENGTH(payload) AS SIGNED) FROM `{outbox}_dlq` FORCE INDEX (PRIMARY)
WHERE {filter} AND NOT resolved AND id > ? AND id <= ?
ORDER BY id LIMIT ?
