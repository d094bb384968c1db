DELETE FROM "{outbox}_attempts" WHERE rowid IN (
    SELECT rowid FROM "{outbox}_attempts"
    WHERE failed_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1) LIMIT $2
)
