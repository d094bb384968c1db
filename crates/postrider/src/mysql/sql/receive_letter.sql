INSERT INTO postrider_inbox_dlq
    (consumer, event_id, source, message_key, headers, payload, error_message)
VALUES (?, ?, ?, ?, ?, ?, ?)
