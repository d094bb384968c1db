-- Two operators at once: the second waits for the write lock, and then sees `resolved`.
SELECT resolved, resolved_by FROM "{outbox}_dlq" WHERE id = $1
