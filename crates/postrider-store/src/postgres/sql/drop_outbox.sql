-- Drops all tables and functions of one outbox.
DROP TABLE IF EXISTS "{outbox}", "{outbox}_keys", "{outbox}_archive", "{outbox}_dlq",
    "{outbox}_closed", "{outbox}_attempts", "{outbox}_ledger_entries", "{outbox}_ledger";
DROP FUNCTION IF EXISTS "{outbox}_remember"(), "{outbox}_record"(), "{outbox}_forget"(),
    "{outbox}_notify"();
