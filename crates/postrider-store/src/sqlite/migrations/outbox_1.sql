-- The tables of one outbox. Every statement can be run again, which restores a dropped table.
-- Defaults, checks and triggers run in the application's own SQLite, which may be older than the
-- relay's: they use no feature newer than 3.24.

-- Live events only. Required in an INSERT: aggregate_type, aggregate_id, event_type, payload.
-- AUTOINCREMENT: an id is never assigned twice, even after the newest row was delivered and
-- deleted. The checks refuse what other stores refuse by type. A time in another format would not
-- sort; a payload that is not text could not be read back and would stop every claim that reads it.
-- headers and payload come last, so that a scan that skips a row reads none of its overflow pages.
CREATE TABLE IF NOT EXISTS "{outbox}" (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id       TEXT    NOT NULL DEFAULT (
                       lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
                       substr(lower(hex(randomblob(2))), 2) || '-' ||
                       substr('89ab', 1 + (random() & 3), 1) ||
                       substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))
                   ) CHECK (typeof(event_id) = 'text' AND length(event_id) = 36),
    request_id     TEXT    CHECK (request_id IS NULL OR
                       (typeof(request_id) = 'text' AND length(request_id) <= 255)),
    aggregate_type TEXT    NOT NULL
                   CHECK (typeof(aggregate_type) = 'text' AND length(aggregate_type) <= 100),
    aggregate_id   TEXT    NOT NULL
                   CHECK (typeof(aggregate_id) = 'text' AND length(aggregate_id) <= 255),
    event_type     TEXT    NOT NULL
                   CHECK (typeof(event_type) = 'text' AND length(event_type) <= 200),
    content_hash   TEXT    CHECK (content_hash IS NULL OR
                       (typeof(content_hash) = 'text' AND length(content_hash) <= 64)),
    status         TEXT    NOT NULL DEFAULT 'PENDING'
                   CHECK (status IN ('PENDING', 'PROCESSING', 'FAILED', 'DEAD_LETTER')),
    retry_count    INTEGER NOT NULL DEFAULT 0,
    redrive_count  INTEGER NOT NULL DEFAULT 0,
    crash_count    INTEGER NOT NULL DEFAULT 0,
    max_retries    INTEGER CHECK (max_retries IS NULL OR typeof(max_retries) = 'integer'),
    next_retry_at  TEXT    CHECK (next_retry_at IS NULL OR
                       (next_retry_at GLOB '????-??-??T??:??:??.???Z'
                        AND coalesce(julianday(next_retry_at), 0) > 0)),
    expires_at     TEXT    CHECK (expires_at IS NULL OR
                       (expires_at GLOB '????-??-??T??:??:??.???Z'
                        AND coalesce(julianday(expires_at), 0) > 0)),
    locked_by      TEXT,
    locked_at      TEXT,
    version        INTEGER NOT NULL DEFAULT 0,
    last_error     TEXT,
    dead_reason    TEXT,
    created_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
                   CHECK (created_at GLOB '????-??-??T??:??:??.???Z'
                       AND coalesce(julianday(created_at), 0) > 0),
    updated_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    headers        TEXT    CHECK (headers IS NULL OR
                       (typeof(headers) = 'text' AND substr(ltrim(headers), 1, 1) = '{')),
    payload        TEXT    NOT NULL CHECK (typeof(payload) = 'text')
);

-- Rows that wait to be due: failed, deferred, released, recovered or appended for later.
CREATE INDEX IF NOT EXISTS "{outbox}_waiting"
    ON "{outbox}" (next_retry_at, id) WHERE next_retry_at IS NOT NULL;

-- Rows that a relay held when it died, twice or more. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_suspects"
    ON "{outbox}" (crash_count, id) WHERE crash_count >= 2;

-- Rows that are dead but could not be moved yet. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_marked"
    ON "{outbox}" (id) WHERE dead_reason IS NOT NULL;

-- Request ids outlive their event, so they are not a unique index of the outbox.
CREATE TABLE IF NOT EXISTS "{outbox}_keys" (
    request_id TEXT    NOT NULL PRIMARY KEY,
    id         INTEGER NOT NULL,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS "{outbox}_keys_age" ON "{outbox}_keys" (created_at);

-- Delivered events.
CREATE TABLE IF NOT EXISTS "{outbox}_archive" (
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
    -- Not the id alone: ids are reused after a restore.
    PRIMARY KEY (id, delivered_at)
);
CREATE INDEX IF NOT EXISTS "{outbox}_archive_age" ON "{outbox}_archive" (delivered_at);

CREATE TABLE IF NOT EXISTS "{outbox}_dlq" (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    original_id      INTEGER NOT NULL,
    event_id         TEXT    NOT NULL,
    request_id       TEXT,
    aggregate_type   TEXT    NOT NULL,
    aggregate_id     TEXT    NOT NULL,
    event_type       TEXT    NOT NULL,
    payload          TEXT    NOT NULL,
    headers          TEXT,
    content_hash     TEXT,
    reason           TEXT    NOT NULL,
    error_message    TEXT    NOT NULL,
    error_detail     TEXT,
    failed_at        TEXT    NOT NULL,
    retry_count      INTEGER NOT NULL,
    max_retries      INTEGER,
    redrive_count    INTEGER NOT NULL,
    event_created_at TEXT    NOT NULL,
    resolved         BOOLEAN NOT NULL DEFAULT 0,
    resolved_at      TEXT,
    resolved_by      TEXT,
    resolution_note  TEXT,
    retried_as       INTEGER,
    created_at       TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at       TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_open" ON "{outbox}_dlq" (id) WHERE NOT resolved;
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_type" ON "{outbox}_dlq" (event_type, id);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_failed_at" ON "{outbox}_dlq" (failed_at);

-- The last 20 failed attempts of an event, by event id: they stay readable after the event has
-- moved.
CREATE TABLE IF NOT EXISTS "{outbox}_attempts" (
    event_id  TEXT    NOT NULL,
    attempt   INTEGER NOT NULL,
    failed_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    error     TEXT    NOT NULL,
    took_ms   INTEGER NOT NULL,
    relay_id  TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS "{outbox}_attempts_event" ON "{outbox}_attempts" (event_id, attempt);
CREATE INDEX IF NOT EXISTS "{outbox}_attempts_age" ON "{outbox}_attempts" (failed_at);

-- The ledger. SQLite has one writer at a time anyway, so a counter row does not make writers wait
-- longer.
CREATE TABLE IF NOT EXISTS "{outbox}_ledger" (
    minute     TEXT    NOT NULL,
    event_type TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    count      INTEGER NOT NULL,
    id_sum     INTEGER NOT NULL,
    PRIMARY KEY (minute, event_type, kind)
) WITHOUT ROWID;

-- A repeated request id skips the row, and the statement continues with the next one. A retry of a
-- dead letter keeps its request id, and is not a repeat.
DROP TRIGGER IF EXISTS "{outbox}_repeat";
CREATE TRIGGER "{outbox}_repeat" BEFORE INSERT ON "{outbox}"
WHEN NEW.request_id IS NOT NULL AND NEW.redrive_count = 0
BEGIN
    SELECT RAISE(IGNORE) FROM "{outbox}_keys" WHERE request_id = NEW.request_id;
END;

-- After the insert, because before it the row has no id yet.
DROP TRIGGER IF EXISTS "{outbox}_remember";
CREATE TRIGGER "{outbox}_remember" AFTER INSERT ON "{outbox}" WHEN NEW.request_id IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO "{outbox}_keys" (request_id, id) VALUES (NEW.request_id, NEW.id);
END;

DROP TRIGGER IF EXISTS "{outbox}_record";
CREATE TRIGGER "{outbox}_record" AFTER INSERT ON "{outbox}"
BEGIN
    INSERT INTO "{outbox}_ledger" (minute, event_type, kind, count, id_sum)
    VALUES (substr(NEW.created_at, 1, 16) || ':00.000Z', NEW.event_type, 'appended', 1, NEW.id)
    ON CONFLICT (minute, event_type, kind)
    DO UPDATE SET count = count + 1, id_sum = id_sum + excluded.id_sum;
END;
