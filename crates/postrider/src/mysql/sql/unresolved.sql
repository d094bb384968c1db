SELECT COUNT(*) FROM `{outbox}_dlq` WHERE resolved = 0
