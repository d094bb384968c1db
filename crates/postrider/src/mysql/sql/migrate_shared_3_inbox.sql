-- For consumers. Every statement can run again.

-- Which consumer received which event. Written in the consumer's own transaction, together with what
-- the event changed there.
CREATE TABLE IF NOT EXISTS postrider_inbox (
    consumer    VARCHAR(100) NOT NULL,
    event_id    VARCHAR(100) NOT NULL,
    outcome     VARCHAR(10)  NOT NULL DEFAULT 'applied' CHECK (outcome IN ('applied', 'dead')),
    received_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer, event_id),
    KEY postrider_inbox_age (received_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- The consumers' books: an entry for each statement that received something, summed up by upkeep.
-- What was applied and what is dead is counted in the inbox; here are only the rows that left it.
CREATE TABLE IF NOT EXISTS postrider_inbox_books (
    id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer       VARCHAR(100) NOT NULL,
    received_count BIGINT       NOT NULL,
    ignored_count  BIGINT       NOT NULL,
    applied_count  BIGINT       NOT NULL DEFAULT 0,
    dead_count     BIGINT       NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Messages that a consumer could not handle.
CREATE TABLE IF NOT EXISTS postrider_inbox_dlq (
    id              BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer        VARCHAR(100)  NOT NULL,
    event_id        VARCHAR(100)  NOT NULL,
    -- Where it came from, such as topic/partition@offset.
    source          VARCHAR(300)  NOT NULL,
    message_key     MEDIUMBLOB,
    headers         MEDIUMTEXT    NOT NULL,
    payload         LONGBLOB      NOT NULL,
    error_message   VARCHAR(1000) NOT NULL,
    failed_at       DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- Since when an operator wants it handled again.
    retry_asked_at  DATETIME(6),
    resolved_at     DATETIME(6),
    resolved_by     VARCHAR(100),
    resolution_note TEXT,
    KEY postrider_inbox_dlq_event (consumer, event_id),
    KEY postrider_inbox_dlq_retry (consumer, retry_asked_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;

-- Named locks that end with the transaction: whoever writes the row has it. A row that nobody used for
-- days is removed by upkeep, which must not be asked to rewrite an index at every lock: hence a date.
CREATE TABLE IF NOT EXISTS postrider_locks (
    name    VARCHAR(200) NOT NULL PRIMARY KEY,
    used_on DATE         NOT NULL,
    KEY postrider_locks_age (used_on)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
