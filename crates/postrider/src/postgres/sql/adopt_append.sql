-- A row that is inserted into the adopted table is an event, in the writer's own transaction. A
-- repeated request id is refused, as the table's own unique index would.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_append"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT ({due}) THEN
        RETURN NULL;
    END IF;
    {append}
    IF NOT FOUND THEN
        RAISE unique_violation USING
            MESSAGE = 'the request id of this row was used before, within the window of outbox {name}',
            CONSTRAINT = '{outbox}_keys_pkey';
    END IF;
    RETURN NULL;
END $$;
