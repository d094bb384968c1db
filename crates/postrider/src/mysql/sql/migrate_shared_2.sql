-- For operators. Every statement can run again.

-- Bulk jobs: an operator's action on everything that fits a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    outbox          VARCHAR(40)  NOT NULL,
    -- Of somebody who may ask again without having heard the answer.
    request_key     VARCHAR(200) UNIQUE,
    -- What to do and the filter, as JSON.
    work            TEXT         NOT NULL,
    operator        VARCHAR(100) NOT NULL,
    note            TEXT         NOT NULL,
    rate            BIGINT,
    state           VARCHAR(10)  NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          TEXT,
    -- Entries up to the cursor are dealt with; those above max_id came later than the job.
    cursor_id       BIGINT       NOT NULL DEFAULT 0,
    max_id          BIGINT       NOT NULL,
    done_count      BIGINT       NOT NULL DEFAULT 0,
    skipped_count   BIGINT       NOT NULL DEFAULT 0,
    -- The first few that go alone: how many, for how long, and which rows they are.
    canary_count    BIGINT,
    canary_within_s BIGINT,
    canary_ids      TEXT         NOT NULL DEFAULT '[]',
    canary_until    DATETIME(6),
    canary_passed   BOOLEAN      NOT NULL DEFAULT 0,
    -- Who works on it, and when it last showed that it lives.
    runner          VARCHAR(100),
    beat_at         DATETIME(6),
    created_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at      DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- What operators paused. Relays read it at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      VARCHAR(10)  NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      VARCHAR(100) NOT NULL,
    operator  VARCHAR(100) NOT NULL,
    note      TEXT         NOT NULL,
    paused_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
