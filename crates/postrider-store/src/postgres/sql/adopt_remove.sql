-- Drops the triggers with their functions, including those on the adopted table, which is not
-- changed.
DROP FUNCTION IF EXISTS "{outbox}_adopt_append"(), "{outbox}_adopt_state"(),
    "{outbox}_adopt_gone"(), "{outbox}_adopt_dead"(), "{outbox}_adopt_resolved"(),
    "{outbox}_adopt_headers"(text) CASCADE;
DROP INDEX IF EXISTS "{outbox}_adopted";
