-- For operators. Every statement can run again.

-- Bulk jobs: an operator's action on everything that fits a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox          TEXT    NOT NULL,
    -- Of somebody who may ask again without having heard the answer.
    request_key     TEXT    UNIQUE,
    -- What to do and the filter, as JSON.
    work            TEXT    NOT NULL,
    operator        TEXT    NOT NULL,
    note            TEXT    NOT NULL,
    rate            INTEGER,
    state           TEXT    NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          TEXT,
    -- Entries up to the cursor are dealt with; those above max_id came later than the job.
    cursor_id       INTEGER NOT NULL DEFAULT 0,
    max_id          INTEGER NOT NULL,
    done_count      INTEGER NOT NULL DEFAULT 0,
    skipped_count   INTEGER NOT NULL DEFAULT 0,
    -- The first few that go alone: how many, for how long, and which rows they are.
    canary_count    INTEGER,
    canary_within_s INTEGER,
    canary_ids      TEXT    NOT NULL DEFAULT '[]',
    canary_until    TEXT,
    canary_passed   BOOLEAN NOT NULL DEFAULT 0,
    -- Who works on it, and when it last showed that it lives.
    runner          TEXT,
    beat_at         TEXT,
    created_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    updated_at      TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What operators paused. Relays read it at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      TEXT NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      TEXT NOT NULL,
    operator  TEXT NOT NULL,
    note      TEXT NOT NULL,
    paused_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
