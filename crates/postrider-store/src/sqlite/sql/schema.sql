-- name: grants
-- No GRANTs: SQLite has no roles. The application and the relay write the file and its folder
-- (SQLite keeps `-wal` and `-shm` next to the file); a viewer needs to read them. Every program
-- that writes should set, on each connection:
--   PRAGMA busy_timeout = 5000;      -- wait for the write lock instead of failing at once
--   PRAGMA synchronous = FULL;       -- a committed event survives a power cut
-- and begin its transactions with BEGIN IMMEDIATE.

-- name: drop_outbox
-- Drops all tables of one outbox; its indexes and triggers are dropped with their tables.
DROP TABLE IF EXISTS "{outbox}";
DROP TABLE IF EXISTS "{outbox}_keys";
DROP TABLE IF EXISTS "{outbox}_archive";
DROP TABLE IF EXISTS "{outbox}_dlq";
DROP TABLE IF EXISTS "{outbox}_closed";
DROP TABLE IF EXISTS "{outbox}_attempts";
DROP TABLE IF EXISTS "{outbox}_ledger";
