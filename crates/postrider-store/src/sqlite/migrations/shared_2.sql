-- Tables for operators. Every statement can be run again.

-- Bulk jobs: an operator's action on all entries that match a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox          TEXT    NOT NULL,
    -- Lets a caller that did not receive the answer send the request again.
    request_key     TEXT    UNIQUE,
    -- The kind of the job and its filter, as JSON.
    work            TEXT    NOT NULL,
    operator        TEXT    NOT NULL,
    note            TEXT    NOT NULL,
    rate            INTEGER,
    state           TEXT    NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          TEXT,
    -- Entries up to the cursor have been processed; those above max_id are newer than the job.
    cursor_id       INTEGER NOT NULL DEFAULT 0,
    max_id          INTEGER NOT NULL,
    done_count      INTEGER NOT NULL DEFAULT 0,
    skipped_count   INTEGER NOT NULL DEFAULT 0,
    -- The canary: number of events, time limit, and row ids.
    canary_count    INTEGER,
    canary_within_s INTEGER,
    canary_ids      TEXT    NOT NULL DEFAULT '[]',
    canary_until    TEXT,
    canary_passed   BOOLEAN NOT NULL DEFAULT 0,
    -- The process that works on it, and its last heartbeat.
    runner          TEXT,
    beat_at         TEXT,
    created_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- Pauses set by operators. Relays read them at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      TEXT NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      TEXT NOT NULL,
    operator  TEXT NOT NULL,
    note      TEXT NOT NULL,
    paused_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
