-- $1 is the age as a modifier of strftime ('-604800.000 seconds').
DELETE FROM "{outbox}_archive" WHERE rowid IN (
    SELECT rowid FROM "{outbox}_archive"
    WHERE delivered_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1) LIMIT $2
)
