-- Oldest first, after an id up to another, without payloads.
SELECT id, error_message, redrive_count, TIMESTAMPDIFF(MICROSECOND, failed_at, UTC_TIMESTAMP(6)) DIV 1000 AS age_ms
FROM `{outbox}_dlq` FORCE INDEX (PRIMARY)
WHERE {filter} AND NOT resolved AND id > ? AND id <= ?
ORDER BY id LIMIT ?
