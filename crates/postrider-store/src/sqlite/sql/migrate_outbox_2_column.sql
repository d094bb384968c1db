-- The kind of a dead letter's error, computed by the program; '' until maintenance has computed it.
-- SQLite has no IF NOT EXISTS here: runs only if the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
