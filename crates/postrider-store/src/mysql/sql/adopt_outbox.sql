-- Progress of the import of an adopted dead-letter table. Dead letters up to letters_until are from
-- before the adoption; later ones are copies of the outbox's own, until the import has ended.
CREATE TABLE IF NOT EXISTS postrider_adoptions (
    outbox        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_table VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_id    VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_until BIGINT      NOT NULL,
    letters_done  BIGINT      NOT NULL DEFAULT 0,
    ended         BOOLEAN     NOT NULL DEFAULT FALSE,
    PRIMARY KEY (outbox, letters_table)
) ENGINE = InnoDB;

-- Prefix of the event ids that are made from integer ids, generated at the first adoption.
CREATE TABLE IF NOT EXISTS postrider_adopted_ids (
    outbox VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    prefix VARCHAR(13) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (prefix REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}$')
) ENGINE = InnoDB;
