-- The tables of one outbox. Every statement can be run again, which restores a dropped table.

-- Live events only. Required in an INSERT: aggregate_type, aggregate_id, event_type, payload.
-- No index holds a column that a claim changes, and half of each page is left free: a claim then
-- rewrites a row within its page (HOT) and touches no index. No CHECK and no generated column: the
-- server parses their expressions again in every statement, and so made an INSERT of one row four
-- times as expensive (docs/decisions/0099). Triggers check the values (outbox_4.sql).
CREATE TABLE IF NOT EXISTS "{outbox}" (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       uuid         NOT NULL DEFAULT gen_random_uuid(),
    request_id     varchar(255),
    aggregate_type varchar(100) NOT NULL,
    aggregate_id   varchar(255) NOT NULL,
    event_type     varchar(200) NOT NULL,
    payload        text         NOT NULL,
    headers        jsonb,
    content_hash   varchar(64),
    status         varchar(20)  NOT NULL DEFAULT 'PENDING',
    retry_count    integer      NOT NULL DEFAULT 0,
    redrive_count  integer      NOT NULL DEFAULT 0,
    crash_count    integer      NOT NULL DEFAULT 0,
    max_retries    integer,
    next_retry_at  timestamptz,
    expires_at     timestamptz,
    locked_by      varchar(100),
    locked_at      timestamptz,
    version        bigint       NOT NULL DEFAULT 0,
    last_error     varchar(500),
    dead_reason    varchar(20),
    created_at     timestamptz  NOT NULL DEFAULT now(),
    updated_at     timestamptz  NOT NULL DEFAULT now()
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

-- Rows that wait to be due: failed, deferred, released, recovered or appended for later.
CREATE INDEX IF NOT EXISTS "{outbox}_waiting"
    ON "{outbox}" (next_retry_at, id) WHERE next_retry_at IS NOT NULL;

-- Rows that a relay held when it died, twice or more. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_suspects"
    ON "{outbox}" (crash_count, id) WHERE crash_count >= 2;

-- Rows that are dead but could not be moved yet. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_marked"
    ON "{outbox}" (id) WHERE dead_reason IS NOT NULL;

-- Request ids outlive their event, so they are not a unique index of the outbox.
CREATE TABLE IF NOT EXISTS "{outbox}_keys" (
    request_id varchar(255) PRIMARY KEY,
    id         bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS "{outbox}_keys_age" ON "{outbox}_keys" (created_at);

-- Delivered events, partitioned by day, so that retention is a DROP.
CREATE TABLE IF NOT EXISTS "{outbox}_archive" (
    id             bigint       NOT NULL,
    event_id       uuid         NOT NULL,
    request_id     varchar(255),
    aggregate_type varchar(100) NOT NULL,
    aggregate_id   varchar(255) NOT NULL,
    event_type     varchar(200) NOT NULL,
    payload        text         NOT NULL,
    headers        jsonb,
    content_hash   varchar(64),
    retry_count    integer      NOT NULL,
    redrive_count  integer      NOT NULL,
    created_at     timestamptz  NOT NULL,
    delivered_at   timestamptz  NOT NULL,
    PRIMARY KEY (id, delivered_at)
) PARTITION BY RANGE (delivered_at);
CREATE TABLE IF NOT EXISTS "{outbox}_archive_rest" PARTITION OF "{outbox}_archive" DEFAULT;

CREATE TABLE IF NOT EXISTS "{outbox}_dlq" (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    original_id      bigint        NOT NULL,
    event_id         uuid          NOT NULL,
    request_id       varchar(255),
    aggregate_type   varchar(100)  NOT NULL,
    aggregate_id     varchar(255)  NOT NULL,
    event_type       varchar(200)  NOT NULL,
    payload          text          NOT NULL,
    headers          jsonb,
    content_hash     varchar(64),
    reason           varchar(20)   NOT NULL,
    error_message    varchar(1000) NOT NULL,
    error_detail     text,
    failed_at        timestamptz   NOT NULL,
    retry_count      integer       NOT NULL,
    max_retries      integer,
    redrive_count    integer       NOT NULL,
    event_created_at timestamptz   NOT NULL,
    resolved         boolean       NOT NULL DEFAULT false,
    resolved_at      timestamptz,
    resolved_by      varchar(100),
    resolution_note  text,
    retried_as       bigint,
    created_at       timestamptz   NOT NULL DEFAULT now(),
    updated_at       timestamptz   NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_open" ON "{outbox}_dlq" (id) WHERE NOT resolved;
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_type" ON "{outbox}_dlq" (event_type, id);
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_failed_at" ON "{outbox}_dlq" (failed_at);

-- The last 20 failed attempts of an event, by event id: they stay readable after the event has
-- moved.
CREATE TABLE IF NOT EXISTS "{outbox}_attempts" (
    event_id  uuid         NOT NULL,
    attempt   integer      NOT NULL,
    failed_at timestamptz  NOT NULL DEFAULT now(),
    error     varchar(500) NOT NULL,
    took_ms   bigint       NOT NULL,
    relay_id  varchar(100) NOT NULL
);
CREATE INDEX IF NOT EXISTS "{outbox}_attempts_event" ON "{outbox}_attempts" (event_id, attempt);
CREATE INDEX IF NOT EXISTS "{outbox}_attempts_age" ON "{outbox}_attempts" (failed_at);

-- The ledger. Entries are only ever appended, because writers would wait for each other at a
-- counter row (8,300 transactions/s became 2,200). Maintenance folds the entries into one row per
-- minute, type and kind.
CREATE TABLE IF NOT EXISTS "{outbox}_ledger_entries" (
    minute     timestamptz  NOT NULL,
    event_type varchar(200) NOT NULL,
    kind       varchar(10)  NOT NULL,
    count      bigint       NOT NULL,
    id_sum     numeric      NOT NULL
);
CREATE TABLE IF NOT EXISTS "{outbox}_ledger" (
    minute     timestamptz  NOT NULL,
    event_type varchar(200) NOT NULL,
    kind       varchar(10)  NOT NULL,
    count      bigint       NOT NULL,
    id_sum     numeric      NOT NULL,
    PRIMARY KEY (minute, event_type, kind)
) WITH (fillfactor = 50);

-- A repeated request id skips the row. SECURITY DEFINER: the application needs no grant but INSERT.
-- A retry of a dead letter keeps its request id, and is not a repeat.
CREATE OR REPLACE FUNCTION "{outbox}_remember"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO "{outbox}_keys" (request_id, id) VALUES (NEW.request_id, NEW.id)
    ON CONFLICT (request_id) DO NOTHING;
    IF FOUND OR NEW.redrive_count > 0 THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_remember" BEFORE INSERT ON "{outbox}"
    FOR EACH ROW WHEN (NEW.request_id IS NOT NULL) EXECUTE FUNCTION "{outbox}_remember"();

CREATE OR REPLACE FUNCTION "{outbox}_record"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'appended', count(*), sum(id)
    FROM appended GROUP BY 1, 2;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_record" AFTER INSERT ON "{outbox}"
    REFERENCING NEW TABLE AS appended FOR EACH STATEMENT EXECUTE FUNCTION "{outbox}_record"();
