-- Tables shared by all outboxes of a database. Every statement can run again. Times are text in one
-- form (2026-01-31T23:59:59.123Z, UTC), so that they sort as text.

-- One row: what the tables are, and the oldest program that may still use them.
CREATE TABLE IF NOT EXISTS postrider_schema (
    version      INTEGER NOT NULL,
    oldest_relay INTEGER NOT NULL,
    migrated_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TABLE IF NOT EXISTS postrider_outboxes (
    name       TEXT    NOT NULL PRIMARY KEY,
    table_name TEXT    NOT NULL UNIQUE,
    version    INTEGER NOT NULL,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The one liveness record.
CREATE TABLE IF NOT EXISTS postrider_relays (
    id         TEXT    NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL DEFAULT 1,
    heartbeat  INTEGER NOT NULL DEFAULT 0,
    fenced     BOOLEAN NOT NULL DEFAULT 0,
    host       TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    started_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- Who did what to which event.
CREATE TABLE IF NOT EXISTS postrider_audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    operator TEXT NOT NULL,
    action   TEXT NOT NULL,
    outbox   TEXT NOT NULL,
    target   TEXT NOT NULL,
    detail   TEXT NOT NULL
);
