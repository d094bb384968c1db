-- Tables for consumers. Every statement can be run again.

-- The events that each consumer received, inserted in the same transaction as the consumer's own
-- changes.
CREATE TABLE IF NOT EXISTS postrider_inbox (
    consumer    TEXT NOT NULL,
    event_id    TEXT NOT NULL,
    outcome     TEXT NOT NULL DEFAULT 'applied' CHECK (outcome IN ('applied', 'dead')),
    received_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS postrider_inbox_age ON postrider_inbox (received_at);

-- The consumers' ledger, updated at once, because SQLite has one writer at a time. Applied and dead
-- messages are counted in the inbox; here are only those removed from it.
CREATE TABLE IF NOT EXISTS postrider_inbox_ledger (
    consumer       TEXT    NOT NULL PRIMARY KEY,
    received_count INTEGER NOT NULL,
    ignored_count  INTEGER NOT NULL,
    applied_count  INTEGER NOT NULL DEFAULT 0,
    dead_count     INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Messages that a consumer could not process.
CREATE TABLE IF NOT EXISTS postrider_inbox_dlq (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer        TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    -- Origin of the message, such as topic/partition@offset.
    source          TEXT NOT NULL,
    message_key     BLOB,
    headers         TEXT NOT NULL,
    payload         BLOB NOT NULL,
    error_message   TEXT NOT NULL,
    failed_at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- When an operator asked for a retry.
    retry_asked_at  TEXT,
    resolved_at     TEXT,
    resolved_by     TEXT,
    resolution_note TEXT
);
CREATE INDEX IF NOT EXISTS postrider_inbox_dlq_event
    ON postrider_inbox_dlq (consumer, event_id);
CREATE INDEX IF NOT EXISTS postrider_inbox_dlq_retry
    ON postrider_inbox_dlq (consumer, id) WHERE retry_asked_at IS NOT NULL;
