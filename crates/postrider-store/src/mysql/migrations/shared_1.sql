-- Tables shared by all outboxes of a database. Every statement can be run again. Of the two kinds of
-- executable comments, MariaDB executes those with M, and MySQL those with its version. Here they
-- choose the collation that compares bytes and pads nothing: others treat 'a', 'A' and 'a ' as the
-- same id.

-- One row: the version of the tables, and the oldest program that may still use them.
CREATE TABLE IF NOT EXISTS postrider_schema (
    version      INT         NOT NULL PRIMARY KEY,
    oldest_relay INT         NOT NULL,
    migrated_at  DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS postrider_outboxes (
    name       VARCHAR(40) NOT NULL PRIMARY KEY,
    table_name VARCHAR(40) NOT NULL UNIQUE,
    version    INT         NOT NULL,
    -- How relays share the work, and the number of changes to it.
    claim      VARCHAR(10) NOT NULL CHECK (claim IN ('rows', 'lanes')),
    mode_epoch BIGINT      NOT NULL DEFAULT 1,
    created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- The relays and their heartbeats.
CREATE TABLE IF NOT EXISTS postrider_relays (
    id         VARCHAR(100) NOT NULL PRIMARY KEY,
    epoch      BIGINT       NOT NULL DEFAULT 1,
    heartbeat  BIGINT       NOT NULL DEFAULT 0,
    fenced     BOOLEAN      NOT NULL DEFAULT 0,
    host       VARCHAR(255) NOT NULL,
    version    VARCHAR(50)  NOT NULL,
    -- The outboxes it works on, with the epoch of the claim mode, as JSON.
    serving    TEXT         NOT NULL,
    started_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Claim mode `lanes`: the owner of each lane. An owner that is fenced or not in postrider_relays
-- owns nothing.
CREATE TABLE IF NOT EXISTS postrider_lanes (
    outbox      VARCHAR(40) NOT NULL,
    lane        TINYINT     NOT NULL,
    owner       VARCHAR(100),
    version     BIGINT      NOT NULL DEFAULT 0,
    -- Number of consecutive owners that died, and the events that they had in flight.
    crash_count INT         NOT NULL DEFAULT 0,
    flight_to   BIGINT,
    suspect_id  BIGINT,
    PRIMARY KEY (outbox, lane)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Keys that are stopped until an operator releases them.
CREATE TABLE IF NOT EXISTS postrider_parked_keys (
    outbox         VARCHAR(40)  NOT NULL,
    aggregate_type VARCHAR(100) NOT NULL,
    aggregate_id   VARCHAR(255) NOT NULL,
    parked_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (outbox, aggregate_type, aggregate_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- The audit trail of operators' actions.
CREATE TABLE IF NOT EXISTS postrider_audit (
    id       BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    at       DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    operator VARCHAR(100) NOT NULL,
    action   VARCHAR(50)  NOT NULL,
    outbox   VARCHAR(40)  NOT NULL,
    target   VARCHAR(100) NOT NULL,
    detail   TEXT         NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
