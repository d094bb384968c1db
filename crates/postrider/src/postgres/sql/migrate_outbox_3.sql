-- What the destination answered, for events whose answer is kept. Only where the column is missing: an
-- ALTER waits for every open transaction on the table, and all others wait behind it.
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
