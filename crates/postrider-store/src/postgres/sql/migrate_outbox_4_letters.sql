-- A dead letter keeps the expiry time of its event, like every other field. Only if the column is
-- missing: an ALTER waits for every open transaction on the table.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_attribute
                   WHERE attrelid = '"{outbox}_dlq"'::regclass AND attname = 'expires_at') THEN
        ALTER TABLE "{outbox}_dlq" ADD COLUMN expires_at timestamptz;
    END IF;
END $$;
