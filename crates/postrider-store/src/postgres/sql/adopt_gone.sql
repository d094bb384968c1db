-- An event that leaves the outbox was delivered, unless it leaves together with its dead letter.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_gone"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM "{outbox}_dlq"
               WHERE original_id = OLD.id AND event_id = OLD.event_id) THEN
        RETURN NULL;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_gone" AFTER DELETE ON "{outbox}" FOR EACH ROW
    WHEN (OLD.event_id::text LIKE '{identities}') EXECUTE FUNCTION "{outbox}_adopt_gone"();
