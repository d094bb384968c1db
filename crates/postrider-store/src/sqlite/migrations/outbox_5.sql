-- Older archives have one row per id, but ids are reused after a restore. SQLite cannot change a
-- primary key, so the rows move to a new table.
ALTER TABLE "{outbox}_archive" RENAME TO "{outbox}_archive_old";
DROP INDEX IF EXISTS "{outbox}_archive_age";
CREATE TABLE "{outbox}_archive" (
    id             INTEGER NOT NULL,
    event_id       TEXT    NOT NULL,
    request_id     TEXT,
    aggregate_type TEXT    NOT NULL,
    aggregate_id   TEXT    NOT NULL,
    event_type     TEXT    NOT NULL,
    content_hash   TEXT,
    retry_count    INTEGER NOT NULL,
    redrive_count  INTEGER NOT NULL,
    created_at     TEXT    NOT NULL,
    delivered_at   TEXT    NOT NULL,
    headers        TEXT,
    payload        TEXT    NOT NULL,
    response       TEXT,
    PRIMARY KEY (id, delivered_at)
);
INSERT INTO "{outbox}_archive"
SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, content_hash, retry_count,
    redrive_count, created_at, delivered_at, headers, payload, response
FROM "{outbox}_archive_old";
DROP TABLE "{outbox}_archive_old";
CREATE INDEX "{outbox}_archive_age" ON "{outbox}_archive" (delivered_at);
