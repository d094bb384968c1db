-- Tables for consumers. Every statement can be run again.

-- The events that each consumer received, inserted in the same transaction as the consumer's own
-- changes. Event ids are compared byte by byte, whatever the database's collation.
CREATE TABLE IF NOT EXISTS postrider_inbox (
    consumer    varchar(100) COLLATE "C" NOT NULL,
    event_id    varchar(100) COLLATE "C" NOT NULL,
    outcome     varchar(10)  NOT NULL DEFAULT 'applied' CHECK (outcome IN ('applied', 'dead')),
    received_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX IF NOT EXISTS postrider_inbox_age ON postrider_inbox (received_at);

-- The consumers' ledger: one entry for each statement that received messages, summed up by
-- maintenance. Applied and dead messages are counted in the inbox; here are only those removed from
-- it.
CREATE TABLE IF NOT EXISTS postrider_inbox_ledger (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer       varchar(100) COLLATE "C" NOT NULL,
    received_count bigint       NOT NULL,
    ignored_count  bigint       NOT NULL,
    applied_count  bigint       NOT NULL DEFAULT 0,
    dead_count     bigint       NOT NULL DEFAULT 0
);

-- Messages that a consumer could not process.
CREATE TABLE IF NOT EXISTS postrider_inbox_dlq (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer        varchar(100) COLLATE "C" NOT NULL,
    event_id        varchar(100) COLLATE "C" NOT NULL,
    -- Origin of the message, such as topic/partition@offset.
    source          varchar(300)  NOT NULL,
    message_key     bytea,
    headers         text          NOT NULL,
    payload         bytea         NOT NULL,
    error_message   varchar(1000) NOT NULL,
    failed_at       timestamptz   NOT NULL DEFAULT now(),
    -- When an operator asked for a retry.
    retry_asked_at  timestamptz,
    resolved_at     timestamptz,
    resolved_by     varchar(100),
    resolution_note text
);
CREATE INDEX IF NOT EXISTS postrider_inbox_dlq_event
    ON postrider_inbox_dlq (consumer, event_id);
CREATE INDEX IF NOT EXISTS postrider_inbox_dlq_retry
    ON postrider_inbox_dlq (consumer, id) WHERE retry_asked_at IS NOT NULL;
