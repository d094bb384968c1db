CREATE OR REPLACE TRIGGER "{outbox}_adopt_append" AFTER INSERT ON "{adopted}"
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION "{outbox}_adopt_append"();
