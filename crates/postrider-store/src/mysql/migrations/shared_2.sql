-- Tables for operators. Every statement can be run again.

-- Bulk jobs: an operator's action on all entries that match a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    outbox          VARCHAR(40)  NOT NULL,
    -- Lets a caller that did not receive the answer send the request again.
    request_key     VARCHAR(200) UNIQUE,
    -- The kind of the job and its filter, as JSON.
    work            TEXT         NOT NULL,
    operator        VARCHAR(100) NOT NULL,
    note            TEXT         NOT NULL,
    rate            BIGINT,
    state           VARCHAR(10)  NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          TEXT,
    -- Entries up to the cursor have been processed; those above max_id are newer than the job.
    cursor_id       BIGINT       NOT NULL DEFAULT 0,
    max_id          BIGINT       NOT NULL,
    done_count      BIGINT       NOT NULL DEFAULT 0,
    skipped_count   BIGINT       NOT NULL DEFAULT 0,
    -- The canary: number of events, time limit, and row ids.
    canary_count    BIGINT,
    canary_within_s BIGINT,
    canary_ids      TEXT         NOT NULL DEFAULT ('[]'),
    canary_until    DATETIME(6),
    canary_passed   BOOLEAN      NOT NULL DEFAULT 0,
    -- The process that works on it, and its last heartbeat.
    runner          VARCHAR(100),
    beat_at         DATETIME(6),
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Pauses set by operators. Relays read them at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      VARCHAR(10)  NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      VARCHAR(100) NOT NULL,
    operator  VARCHAR(100) NOT NULL,
    note      TEXT         NOT NULL,
    paused_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
