-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS "{outbox}_closed" (
    original_id INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    closed_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (original_id, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS "{outbox}_closed_age" ON "{outbox}_closed" (closed_at);
