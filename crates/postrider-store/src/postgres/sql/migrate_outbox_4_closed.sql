-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS "{outbox}_closed" (
    original_id bigint      NOT NULL,
    event_id    uuid        NOT NULL,
    closed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (original_id, event_id)
);
CREATE INDEX IF NOT EXISTS "{outbox}_closed_age" ON "{outbox}_closed" (closed_at);
