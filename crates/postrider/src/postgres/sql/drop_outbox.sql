-- Drops all tables and functions of one outbox.
DROP TABLE IF EXISTS "{outbox}", "{outbox}_keys", "{outbox}_archive", "{outbox}_dlq",
    "{outbox}_closed", "{outbox}_attempts", "{outbox}_book_entries", "{outbox}_books";
DROP FUNCTION IF EXISTS "{outbox}_remember"(), "{outbox}_book"(), "{outbox}_forget"(),
    "{outbox}_notify"();
