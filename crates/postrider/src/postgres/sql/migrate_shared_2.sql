-- For operators. Every statement can run again.

-- Bulk jobs: an operator's action on everything that fits a filter.
CREATE TABLE IF NOT EXISTS postrider_jobs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    outbox          varchar(40)  NOT NULL,
    -- Of somebody who may ask again without having heard the answer.
    request_key     varchar(200) UNIQUE,
    -- What to do and the filter, as JSON.
    work            text         NOT NULL,
    operator        varchar(100) NOT NULL,
    note            text         NOT NULL,
    rate            bigint,
    state           varchar(10)  NOT NULL DEFAULT 'waiting'
                    CHECK (state IN ('waiting', 'running', 'canary', 'done', 'stopped', 'failed')),
    reason          text,
    -- Entries up to the cursor are dealt with; those above max_id came later than the job.
    cursor_id       bigint       NOT NULL DEFAULT 0,
    max_id          bigint       NOT NULL,
    done_count      bigint       NOT NULL DEFAULT 0,
    skipped_count   bigint       NOT NULL DEFAULT 0,
    -- The first few that go alone: how many, for how long, and which rows they are.
    canary_count    bigint,
    canary_within_s bigint,
    canary_ids      text         NOT NULL DEFAULT '[]',
    canary_until    timestamptz,
    canary_passed   boolean      NOT NULL DEFAULT false,
    -- Who works on it, and when it last showed that it lives.
    runner          varchar(100),
    beat_at         timestamptz,
    created_at      timestamptz  NOT NULL DEFAULT now(),
    updated_at      timestamptz  NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- What operators paused. Relays read it at each heartbeat.
CREATE TABLE IF NOT EXISTS postrider_pauses (
    kind      varchar(10)  NOT NULL CHECK (kind IN ('outbox', 'sink')),
    name      varchar(100) NOT NULL,
    operator  varchar(100) NOT NULL,
    note      text         NOT NULL,
    paused_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name)
);
