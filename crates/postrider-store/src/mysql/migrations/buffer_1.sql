-- Tables of write-behind buffers. Every statement can be run again.

-- Decided batches: they ensure that each batch is saved once.
CREATE TABLE IF NOT EXISTS postrider_buffer_batches (
    id          BINARY(16)  NOT NULL PRIMARY KEY,
    buffer      VARCHAR(40) NOT NULL,
    state       VARCHAR(10) NOT NULL
                CHECK (state IN ('applied', 'cancelled', 'dead', 'imported')),
    entries     BIGINT      NOT NULL,
    recorded_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    KEY postrider_buffer_batches_age (buffer, recorded_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- Entries by the outcome of their batch, kept forever.
CREATE TABLE IF NOT EXISTS postrider_buffer_ledger (
    buffer  VARCHAR(40) NOT NULL,
    kind    VARCHAR(10) NOT NULL,
    entries BIGINT      NOT NULL,
    PRIMARY KEY (buffer, kind)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;
