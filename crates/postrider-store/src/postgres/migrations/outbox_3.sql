-- The destination's answer, for events whose answer is kept. Only if the column is missing: an
-- ALTER waits for every open transaction on the table, and all other sessions wait behind it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_attribute
                   WHERE attrelid = '"{outbox}"'::regclass AND attname = 'response') THEN
        ALTER TABLE "{outbox}" ADD COLUMN response text;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_attribute
                   WHERE attrelid = '"{outbox}_archive"'::regclass AND attname = 'response') THEN
        ALTER TABLE "{outbox}_archive" ADD COLUMN response text;
    END IF;
END $$;
