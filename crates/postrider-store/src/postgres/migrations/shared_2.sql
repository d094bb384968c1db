-- Tables for operators. Every statement can be run again.

-- Bulk jobs: an operator's action on all entries that match a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox          varchar(40)  NOT NULL,
    -- Lets a caller that did not receive the answer send the request again.
    request_key     varchar(200) UNIQUE,
    -- The kind of the job and its filter, as JSON.
    work            text         NOT NULL,
    operator        varchar(100) NOT NULL,
    note            text         NOT NULL,
    rate            bigint,
    state           varchar(10)  NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          text,
    -- Entries up to the cursor have been processed; those above max_id are newer than the job.
    cursor_id       bigint       NOT NULL DEFAULT 0,
    max_id          bigint       NOT NULL,
    done_count      bigint       NOT NULL DEFAULT 0,
    skipped_count   bigint       NOT NULL DEFAULT 0,
    -- The canary: number of events, time limit, and row ids.
    canary_count    bigint,
    canary_within_s bigint,
    canary_ids      text         NOT NULL DEFAULT '[]',
    canary_until    timestamptz,
    canary_passed   boolean      NOT NULL DEFAULT false,
    -- The process that works on it, and its last heartbeat.
    runner          varchar(100),
    beat_at         timestamptz,
    created_at      timestamptz  NOT NULL DEFAULT now(),
    updated_at      timestamptz  NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Pauses set by operators. Relays read them at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      varchar(10)  NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      varchar(100) NOT NULL,
    operator  varchar(100) NOT NULL,
    note      text         NOT NULL,
    paused_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name)
);
