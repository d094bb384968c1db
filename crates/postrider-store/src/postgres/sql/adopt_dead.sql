-- Copies a dead letter to the adopted table's own dead letters. A dead letter that was imported
-- from there is not written back.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_dead"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('postrider.adopting', true) = 'on' THEN
        RETURN NULL;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_dead" AFTER INSERT ON "{outbox}_dlq" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}') EXECUTE FUNCTION "{outbox}_adopt_dead"();
