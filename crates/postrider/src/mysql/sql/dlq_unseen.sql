-- Written by an older program, or moved by upkeep itself.
SELECT id, reason, error_message FROM `{outbox}_dlq` WHERE fingerprint = ''
ORDER BY id LIMIT ?
