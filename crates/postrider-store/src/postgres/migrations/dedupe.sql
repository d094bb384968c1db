-- name: open
-- dedupe = "open": a request id is deleted when its event leaves the outbox for any reason.
CREATE OR REPLACE FUNCTION "{outbox}_forget"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM "{outbox}_keys" k USING gone g
    WHERE k.request_id = g.request_id AND k.id = g.id;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_forget" AFTER DELETE ON "{outbox}"
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION "{outbox}_forget"();

-- name: window
-- dedupe = a duration: maintenance deletes request ids by age.
DROP TRIGGER IF EXISTS "{outbox}_forget" ON "{outbox}";
DROP FUNCTION IF EXISTS "{outbox}_forget"();
