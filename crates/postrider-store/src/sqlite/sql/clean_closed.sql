DELETE FROM "{outbox}_closed" WHERE (original_id, event_id) IN (
    SELECT original_id, event_id FROM "{outbox}_closed"
    WHERE closed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
    LIMIT $2
)
