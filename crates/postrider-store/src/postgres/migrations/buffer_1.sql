-- Tables of write-behind buffers. Every statement can be run again.

-- Decided batches: they ensure that each batch is saved once.
CREATE TABLE IF NOT EXISTS postrider_buffer_batches (
    id          uuid        PRIMARY KEY,
    buffer      varchar(40) NOT NULL,
    state       varchar(10) NOT NULL
                CHECK (state IN ('applied', 'cancelled', 'dead', 'imported')),
    entries     bigint      NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS postrider_buffer_batches_age
    ON postrider_buffer_batches (buffer, recorded_at);

-- Entries by the outcome of their batch, kept forever.
CREATE TABLE IF NOT EXISTS postrider_buffer_ledger (
    buffer  varchar(40) NOT NULL,
    kind    varchar(10) NOT NULL,
    entries bigint      NOT NULL,
    PRIMARY KEY (buffer, kind)
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
