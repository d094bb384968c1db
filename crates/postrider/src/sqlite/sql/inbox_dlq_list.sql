-- Unresolved dead letters, newest first: of one consumer or of all, below an id, how many.
SELECT id, consumer, event_id, source, message_key, headers, payload, error_message, failed_at,
       retry_asked_at
FROM postrider_inbox_dlq
WHERE resolved_at IS NULL AND ($1 IS NULL OR consumer = $1) AND id < $2
ORDER BY id DESC LIMIT $3
