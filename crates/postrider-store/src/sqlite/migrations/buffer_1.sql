-- Tables of write-behind buffers. Every statement can be run again.

-- Decided batches: they ensure that each batch is saved once.
CREATE TABLE IF NOT EXISTS postrider_buffer_batches (
    id          BLOB    NOT NULL PRIMARY KEY,
    buffer      TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('applied', 'cancelled', 'dead', 'imported')),
    entries     INTEGER NOT NULL,
    recorded_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS postrider_buffer_batches_age
    ON postrider_buffer_batches (buffer, recorded_at);

-- Entries by the outcome of their batch, kept forever.
CREATE TABLE IF NOT EXISTS postrider_buffer_ledger (
    buffer  TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    entries INTEGER NOT NULL,
    PRIMARY KEY (buffer, kind)
) WITHOUT ROWID;
