SELECT id, reason, error_message FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
