-- The state of an event, shown in its row.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_state"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_state" AFTER UPDATE ON "{outbox}" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}' AND ({changed}))
    EXECUTE FUNCTION "{outbox}_adopt_state"();
