INSERT INTO postrider_inbox_dlq
    (consumer, event_id, source, message_key, headers, payload, error_message)
VALUES ($1, $2, $3, $4, $5, $6, $7)
