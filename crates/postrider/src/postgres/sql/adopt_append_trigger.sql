CREATE OR REPLACE TRIGGER "{outbox}_adopt_append" AFTER INSERT ON "{adopted}"
    FOR EACH ROW EXECUTE FUNCTION "{outbox}_adopt_append"();
