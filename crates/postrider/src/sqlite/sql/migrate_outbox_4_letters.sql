-- A dead letter keeps the time at which its event expires, as every other field of it. SQLite has no
-- IF NOT EXISTS here: run only where the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN expires_at TEXT;
