-- Writes the state of an event to its row. A claim skips a row that another session has locked:
-- waiting for it would stop the claims of all others. The next change updates the row.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_state"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status <> 'FAILED' THEN
        PERFORM 1 FROM "{adopted}" WHERE {id} = {row} FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_state" AFTER UPDATE ON "{outbox}" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}' AND ({changed}))
    EXECUTE FUNCTION "{outbox}_adopt_state"();
