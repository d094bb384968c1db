-- Writes an operator's action on a dead letter to the adopted tables.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_resolved"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_resolved" AFTER UPDATE ON "{outbox}_dlq" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}' AND NEW.resolved <> OLD.resolved)
    EXECUTE FUNCTION "{outbox}_adopt_resolved"();
