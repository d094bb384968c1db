SELECT id, reason, error_message FROM "{outbox}_dlq" WHERE id = ANY ($1)
