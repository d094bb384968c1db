-- How far the import of an adopted dead-letter table has come. Letters up to letters_until were there
-- before the adoption; later ones are copies of the outbox's own, until it has ended.
CREATE TABLE IF NOT EXISTS postrider_adoptions (
    outbox        varchar(40) NOT NULL,
    letters_table varchar(63) NOT NULL,
    letters_id    varchar(63) NOT NULL,
    letters_until bigint      NOT NULL,
    letters_done  bigint      NOT NULL DEFAULT 0,
    ended         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (outbox, letters_table)
);

-- The first part of the identities that come from integer ids, made at the first adoption.
CREATE TABLE IF NOT EXISTS postrider_adopted_ids (
    outbox varchar(40) PRIMARY KEY,
    prefix varchar(13) NOT NULL CHECK (prefix ~ '^[0-9a-f]{8}-[0-9a-f]{4}$')
);

-- An import asks by identity which events are in the outbox already.
CREATE INDEX IF NOT EXISTS "{outbox}_adopted" ON "{outbox}" (event_id);
