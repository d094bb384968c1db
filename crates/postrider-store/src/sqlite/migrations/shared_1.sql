-- Tables shared by all outboxes of a database. Every statement can be run again. All times are text
-- in one format (2026-01-31T23:59:59.123Z, UTC), so that they sort as text.

-- One row: the version of the tables, and the oldest program that may still use them.
CREATE TABLE IF NOT EXISTS postrider_schema (
    version      INTEGER NOT NULL,
    oldest_relay INTEGER NOT NULL,
    migrated_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

CREATE TABLE IF NOT EXISTS postrider_outboxes (
    name       TEXT    NOT NULL PRIMARY KEY,
    table_name TEXT    NOT NULL UNIQUE,
    version    INTEGER NOT NULL,
    -- How relays share the work, and the number of changes to it.
    claim      TEXT    NOT NULL CHECK (claim IN ('rows', 'lanes')),
    mode_epoch INTEGER NOT NULL DEFAULT 1,
    created_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The relays and their heartbeats.
CREATE TABLE IF NOT EXISTS postrider_relays (
    id         TEXT    NOT NULL PRIMARY KEY,
    epoch      INTEGER NOT NULL DEFAULT 1,
    heartbeat  INTEGER NOT NULL DEFAULT 0,
    fenced     BOOLEAN NOT NULL DEFAULT 0,
    host       TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    -- The outboxes it works on, with the epoch of the claim mode, as JSON.
    serving    TEXT    NOT NULL,
    started_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- Claim mode `lanes`: the owner of each lane. An owner that is fenced or not in postrider_relays
-- owns nothing. Rows have no lane in this store, so one relay owns all lanes.
CREATE TABLE IF NOT EXISTS postrider_lanes (
    outbox      TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    owner       TEXT,
    version     INTEGER NOT NULL DEFAULT 0,
    -- Number of consecutive owners that died, and the events that they had in flight.
    crash_count INTEGER NOT NULL DEFAULT 0,
    flight_to   INTEGER,
    suspect_id  INTEGER,
    PRIMARY KEY (outbox, lane)
) WITHOUT ROWID;

-- Keys that are stopped until an operator releases them.
CREATE TABLE IF NOT EXISTS postrider_parked_keys (
    outbox         TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id   TEXT NOT NULL,
    parked_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (outbox, aggregate_type, aggregate_id)
) WITHOUT ROWID;

-- The audit trail of operators' actions.
CREATE TABLE IF NOT EXISTS postrider_audit (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    operator TEXT NOT NULL,
    action   TEXT NOT NULL,
    outbox   TEXT NOT NULL,
    target   TEXT NOT NULL,
    detail   TEXT NOT NULL
);
