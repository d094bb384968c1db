-- A dead letter keeps the expiry time of its event, like every other field. SQLite has no IF NOT
-- EXISTS here: runs only if the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN expires_at TEXT;
