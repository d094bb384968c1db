-- The kind of a dead letter's error, from the program; '' until upkeep has computed it. SQLite has
-- no IF NOT EXISTS here: run only where the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
