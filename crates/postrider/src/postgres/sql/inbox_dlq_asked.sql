-- The oldest letter of a consumer that an operator wants handled again, and nobody is at.
SELECT id, consumer, event_id, source, message_key, headers, payload, error_message, failed_at,
       retry_asked_at
FROM postrider_inbox_dlq
WHERE consumer = $1 AND retry_asked_at IS NOT NULL AND resolved_at IS NULL
ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
