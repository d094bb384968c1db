-- The tables of one outbox. Every statement can be run again, which restores a dropped table.

-- Live events only. Required in an INSERT: aggregate_type, aggregate_id, event_type, payload.
-- Times are UTC in any time zone of the session; a TIMESTAMP or NOW() would shift them by hours.
CREATE TABLE IF NOT EXISTS `{outbox}` (
    id             BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id       CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT (UUID()),
    request_id     VARCHAR(255),
    aggregate_type VARCHAR(100) NOT NULL,
    aggregate_id   VARCHAR(255) NOT NULL,
    event_type     VARCHAR(200) NOT NULL,
    payload        MEDIUMTEXT   NOT NULL,
    -- MariaDB's JSON is a text. That of MySQL would put keys into another order, so it is a text
    -- there, too.
    headers        /*M! JSON *//*!80000 LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */
                   CHECK (JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT'),
    content_hash   VARCHAR(64),
    status         VARCHAR(20)  NOT NULL DEFAULT 'PENDING'
                   CHECK (status IN ('PENDING', 'PROCESSING', 'FAILED', 'DEAD_LETTER')),
    retry_count    INT          NOT NULL DEFAULT 0,
    redrive_count  INT          NOT NULL DEFAULT 0,
    crash_count    INT          NOT NULL DEFAULT 0,
    max_retries    INT,
    next_retry_at  DATETIME(6),
    expires_at     DATETIME(6),
    locked_by      VARCHAR(100),
    locked_at      DATETIME(6),
    version        BIGINT       NOT NULL DEFAULT 0,
    last_error     VARCHAR(500),
    dead_reason    VARCHAR(20),
    lane           TINYINT AS (CRC32(CONCAT(aggregate_type, '/', aggregate_id)) & 63) VIRTUAL,
    -- Like Event::weight_bytes. A claim reads this instead of payloads, which are stored outside of
    -- the row.
    weight_bytes   INT AS (LENGTH(payload) + COALESCE(LENGTH(headers), 0) + 256) STORED,
    -- A claim empties this when it writes the owner: a row that grew would split its page, and a
    -- claim of 1,000 rows took 17 ms instead of 7.
    room           VARCHAR(64) CHARACTER SET ascii NOT NULL
                   DEFAULT '----------------------------------------------------------------',
    -- -1: marked dead; 0: ordinary; 2 or more: a suspect, with its number of crashes.
    queue          INT AS (
        CASE WHEN dead_reason IS NOT NULL THEN -1 WHEN crash_count < 2 THEN 0 ELSE crash_count END
    ) VIRTUAL,
    created_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at     DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- Fresh rows (NULL, by id), waiting rows, suspects and rows marked dead are in one index,
    -- because each index slows down every insert and delete. No claim changes its columns.
    KEY `{outbox}_waiting` (queue, next_retry_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Request ids outlive their event, so they are not a unique index of the outbox. The key is not
-- called PRIMARY because its name is what error 1062 reports to the application. MySQL may require a
-- primary key (sql_require_primary_key, Group Replication).
CREATE TABLE IF NOT EXISTS `{outbox}_keys` (
    request_id VARCHAR(255) NOT NULL,
    id         BIGINT       NOT NULL,
    created_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    /*!80000 PRIMARY KEY (id, request_id), */
    UNIQUE KEY `{outbox}_keys` (request_id),
    KEY `{outbox}_keys_age` (created_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Delivered events.
CREATE TABLE IF NOT EXISTS `{outbox}_archive` (
    id             BIGINT       NOT NULL,
    event_id       CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request_id     VARCHAR(255),
    aggregate_type VARCHAR(100) NOT NULL,
    aggregate_id   VARCHAR(255) NOT NULL,
    event_type     VARCHAR(200) NOT NULL,
    payload        MEDIUMTEXT   NOT NULL,
    headers        /*M! JSON *//*!80000 LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
                   CHECK (JSON_VALID(headers)) */,
    content_hash   VARCHAR(64),
    retry_count    INT          NOT NULL,
    redrive_count  INT          NOT NULL,
    created_at     DATETIME(6)  NOT NULL,
    delivered_at   DATETIME(6)  NOT NULL,
    -- Not the id alone: ids are reused after a TRUNCATE or a restore.
    PRIMARY KEY (id, delivered_at),
    KEY `{outbox}_archive_age` (delivered_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS `{outbox}_dlq` (
    id               BIGINT        NOT NULL AUTO_INCREMENT PRIMARY KEY,
    original_id      BIGINT        NOT NULL,
    event_id         CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    request_id       VARCHAR(255),
    aggregate_type   VARCHAR(100)  NOT NULL,
    aggregate_id     VARCHAR(255)  NOT NULL,
    event_type       VARCHAR(200)  NOT NULL,
    payload          MEDIUMTEXT    NOT NULL,
    headers          /*M! JSON *//*!80000 LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
                     CHECK (JSON_VALID(headers)) */,
    content_hash     VARCHAR(64),
    reason           VARCHAR(20)   NOT NULL,
    error_message    VARCHAR(1000) NOT NULL,
    error_detail     TEXT,
    failed_at        DATETIME(6)   NOT NULL,
    retry_count      INT           NOT NULL,
    max_retries      INT,
    redrive_count    INT           NOT NULL,
    event_created_at DATETIME(6)   NOT NULL,
    resolved         BOOLEAN       NOT NULL DEFAULT 0,
    resolved_at      DATETIME(6),
    resolved_by      VARCHAR(100),
    resolution_note  TEXT,
    retried_as       BIGINT,
    created_at       DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    updated_at       DATETIME(6)   NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY `{outbox}_dlq_resolved` (resolved, resolved_at),
    KEY `{outbox}_dlq_type` (event_type, id),
    KEY `{outbox}_dlq_failed_at` (failed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- The last 20 failed attempts of an event, by event id: they stay readable after the event has
-- moved.
CREATE TABLE IF NOT EXISTS `{outbox}_attempts` (
    id        BIGINT       NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id  CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    attempt   INT          NOT NULL,
    failed_at DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    error     VARCHAR(500) NOT NULL,
    took_ms   BIGINT       NOT NULL,
    relay_id  VARCHAR(100) NOT NULL,
    KEY `{outbox}_attempts_event` (event_id, attempt),
    KEY `{outbox}_attempts_age` (failed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- The ledger. Entries are only ever appended, because writers would wait for each other at a
-- counter row. Maintenance folds the entries into one row per minute, type and kind.
CREATE TABLE IF NOT EXISTS `{outbox}_ledger_entries` (
    id         BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    minute     DATETIME       NOT NULL,
    event_type VARCHAR(200)   NOT NULL,
    kind       VARCHAR(10)    NOT NULL,
    count      BIGINT         NOT NULL,
    id_sum     DECIMAL(38, 0) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
CREATE TABLE IF NOT EXISTS `{outbox}_ledger` (
    minute     DATETIME       NOT NULL,
    event_type VARCHAR(200)   NOT NULL,
    kind       VARCHAR(10)    NOT NULL,
    count      BIGINT         NOT NULL,
    id_sum     DECIMAL(38, 0) NOT NULL,
    PRIMARY KEY (minute, event_type, kind)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
