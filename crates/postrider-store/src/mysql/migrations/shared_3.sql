-- Tables for consumers. Every statement can be run again.

-- The events that each consumer received, inserted in the same transaction as the consumer's own
-- changes.
CREATE TABLE IF NOT EXISTS postrider_inbox (
    consumer    VARCHAR(100) NOT NULL,
    event_id    VARCHAR(100) NOT NULL,
    outcome     VARCHAR(10)  NOT NULL DEFAULT 'applied' CHECK (outcome IN ('applied', 'dead')),
    received_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (consumer, event_id),
    KEY postrider_inbox_age (received_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- The consumers' ledger: one entry for each statement that received messages, summed up by
-- maintenance. Applied and dead messages are counted in the inbox; here are only those removed from
-- it.
CREATE TABLE IF NOT EXISTS postrider_inbox_ledger (
    id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer       VARCHAR(100) NOT NULL,
    received_count BIGINT       NOT NULL,
    ignored_count  BIGINT       NOT NULL,
    applied_count  BIGINT       NOT NULL DEFAULT 0,
    dead_count     BIGINT       NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Messages that a consumer could not process.
CREATE TABLE IF NOT EXISTS postrider_inbox_dlq (
    id              BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    consumer        VARCHAR(100)  NOT NULL,
    event_id        VARCHAR(100)  NOT NULL,
    -- Origin of the message, such as topic/partition@offset.
    source          VARCHAR(300)  NOT NULL,
    message_key     MEDIUMBLOB,
    headers         MEDIUMTEXT    NOT NULL,
    payload         LONGBLOB      NOT NULL,
    error_message   VARCHAR(1000) NOT NULL,
    failed_at       DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- When an operator asked for a retry.
    retry_asked_at  DATETIME(6),
    resolved_at     DATETIME(6),
    resolved_by     VARCHAR(100),
    resolution_note TEXT,
    KEY postrider_inbox_dlq_event (consumer, event_id),
    KEY postrider_inbox_dlq_retry (consumer, retry_asked_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Named locks that end with the transaction: the transaction that has written the row holds the
-- lock. Maintenance removes rows that have not been used for days. A date, so that not every lock
-- has to update the index.
CREATE TABLE IF NOT EXISTS postrider_locks (
    name    VARCHAR(200) NOT NULL PRIMARY KEY,
    used_on DATE         NOT NULL,
    KEY postrider_locks_age (used_on)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
