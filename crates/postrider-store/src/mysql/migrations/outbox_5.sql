-- name: event_id
-- A plain INSERT without an event id gets a random UUID (version 4). UUID() generates version 1,
-- which reveals the server's clock and network address; on MariaDB, UUID_v4() came with 11.7 and
-- RANDOM_BYTES() with 10.10. Runs only if the default is another one: an ALTER waits for every open
-- transaction on the table.
ALTER TABLE `{outbox}` ALTER COLUMN event_id SET DEFAULT (/*!80000 LOWER(CONCAT(
    HEX(RANDOM_BYTES(4)), '-', HEX(RANDOM_BYTES(2)), '-4', LEFT(HEX(RANDOM_BYTES(2)), 3), '-',
    ELT(1 + (ORD(RANDOM_BYTES(1)) & 3), '8', '9', 'a', 'b'), LEFT(HEX(RANDOM_BYTES(2)), 3), '-',
    HEX(RANDOM_BYTES(6)))) *//*M! CONCAT(
    LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 8), '-',
    LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 4), '-4',
    LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 3), '-',
    ELT(1 + FLOOR(RAND() * 4), '8', '9', 'a', 'b'),
    LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 3), '-',
    LEFT(SHA2(CONCAT(UUID(), RAND()), 256), 12)) */);

-- name: archive
-- Older archives have one row per id, but ids are reused after a TRUNCATE or a restore. Runs only
-- for those archives, because it rewrites the table.
ALTER TABLE `{outbox}_archive` DROP PRIMARY KEY, ADD PRIMARY KEY (id, delivered_at);
