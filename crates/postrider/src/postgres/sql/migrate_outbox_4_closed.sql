-- Dead letters that were resolved and cleaned up, so that a backup file does not bring them back.
CREATE TABLE IF NOT EXISTS "{outbox}_closed" (
    original_id bigint      NOT NULL,
    event_id    uuid        NOT NULL,
    closed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (original_id, event_id)
);
CREATE INDEX IF NOT EXISTS "{outbox}_closed_age" ON "{outbox}_closed" (closed_at);
