-- name: on
-- notify = true: one notification per INSERT statement wakes relays. NOTIFY takes a database-wide
-- lock at commit.
CREATE OR REPLACE FUNCTION "{outbox}_notify"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('{outbox}', '');
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_notify" AFTER INSERT ON "{outbox}"
    FOR EACH STATEMENT EXECUTE FUNCTION "{outbox}_notify"();

-- name: off
-- notify = false.
DROP TRIGGER IF EXISTS "{outbox}_notify" ON "{outbox}";
DROP FUNCTION IF EXISTS "{outbox}_notify"();
