-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS `{outbox}_closed` (
    original_id BIGINT      NOT NULL,
    event_id    CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    closed_at   DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (original_id, event_id),
    KEY `{outbox}_closed_age` (closed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
