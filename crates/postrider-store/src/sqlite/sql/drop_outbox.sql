-- Drops all tables of one outbox; its indexes and triggers are dropped with their tables.
DROP TABLE IF EXISTS "{outbox}";
DROP TABLE IF EXISTS "{outbox}_keys";
DROP TABLE IF EXISTS "{outbox}_archive";
DROP TABLE IF EXISTS "{outbox}_dlq";
DROP TABLE IF EXISTS "{outbox}_closed";
DROP TABLE IF EXISTS "{outbox}_attempts";
DROP TABLE IF EXISTS "{outbox}_ledger";
