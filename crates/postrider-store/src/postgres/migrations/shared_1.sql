-- Tables shared by all outboxes of a database. Every statement can be run again.

-- One row: the version of the tables, and the oldest program that may still use them.
CREATE TABLE IF NOT EXISTS postrider_schema (
    version      integer     NOT NULL,
    oldest_relay integer     NOT NULL,
    migrated_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS postrider_outboxes (
    name       varchar(40) PRIMARY KEY,
    table_name varchar(40) NOT NULL UNIQUE,
    version    integer     NOT NULL,
    -- How relays share the work, and the number of changes to it.
    claim      varchar(10) NOT NULL CHECK (claim IN ('rows', 'lanes')),
    mode_epoch bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- The relays and their heartbeats, which rewrite these few rows constantly, so pages have free
-- space for it.
CREATE TABLE IF NOT EXISTS postrider_relays (
    id         varchar(100) PRIMARY KEY,
    epoch      bigint       NOT NULL DEFAULT 1,
    heartbeat  bigint       NOT NULL DEFAULT 0,
    fenced     boolean      NOT NULL DEFAULT false,
    host       varchar(255) NOT NULL,
    version    varchar(50)  NOT NULL,
    -- The outboxes it works on, with the epoch of the claim mode, as JSON.
    serving    text         NOT NULL,
    started_at timestamptz  NOT NULL DEFAULT now()
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Claim mode `lanes`: the owner of each lane. An owner that is fenced or not in postrider_relays
-- owns nothing.
CREATE TABLE IF NOT EXISTS postrider_lanes (
    outbox      varchar(40) NOT NULL,
    lane        smallint    NOT NULL,
    owner       varchar(100),
    version     bigint      NOT NULL DEFAULT 0,
    -- Number of consecutive owners that died, and the events that they had in flight.
    crash_count integer     NOT NULL DEFAULT 0,
    flight_to   bigint,
    suspect_id  bigint,
    PRIMARY KEY (outbox, lane)
) WITH (fillfactor = 50);

-- Keys that are stopped until an operator releases them.
CREATE TABLE IF NOT EXISTS postrider_parked_keys (
    outbox         varchar(40)  NOT NULL,
    aggregate_type varchar(100) NOT NULL,
    aggregate_id   varchar(255) NOT NULL,
    parked_at      timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (outbox, aggregate_type, aggregate_id)
);

-- The audit trail of operators' actions.
CREATE TABLE IF NOT EXISTS postrider_audit (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz  NOT NULL DEFAULT now(),
    operator varchar(100) NOT NULL,
    action   varchar(50)  NOT NULL,
    outbox   varchar(40)  NOT NULL,
    target   varchar(100) NOT NULL,
    detail   text         NOT NULL
);
