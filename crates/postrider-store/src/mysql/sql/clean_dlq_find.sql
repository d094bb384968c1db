-- Resolved dead letters only: unresolved ones are never cleaned up. Age in ms, maximum rows.
SELECT id FROM `{outbox}_dlq` FORCE INDEX (`{outbox}_dlq_resolved`)
WHERE resolved = 1 AND resolved_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
ORDER BY resolved_at LIMIT ? FOR UPDATE SKIP LOCKED
