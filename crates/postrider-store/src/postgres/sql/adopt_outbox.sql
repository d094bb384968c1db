-- Progress of the import of an adopted dead-letter table. Dead letters up to letters_until are from
-- before the adoption; later ones are copies of the outbox's own, until the import has ended.
CREATE TABLE IF NOT EXISTS postrider_adoptions (
    outbox        varchar(40) NOT NULL,
    letters_table varchar(63) NOT NULL,
    letters_id    varchar(63) NOT NULL,
    letters_until bigint      NOT NULL,
    letters_done  bigint      NOT NULL DEFAULT 0,
    ended         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (outbox, letters_table)
);

-- Prefix of the event ids that are made from integer ids, generated at the first adoption.
CREATE TABLE IF NOT EXISTS postrider_adopted_ids (
    outbox varchar(40) PRIMARY KEY,
    prefix varchar(13) NOT NULL CHECK (prefix ~ '^[0-9a-f]{8}-[0-9a-f]{4}$')
);

-- An import looks up by event id which events are in the outbox already.
CREATE INDEX IF NOT EXISTS "{outbox}_adopted" ON "{outbox}" (event_id);
