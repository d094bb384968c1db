-- The triggers go with their functions, those on the adopted table too; the table stays as it is.
DROP FUNCTION IF EXISTS "{outbox}_adopt_append"(), "{outbox}_adopt_state"(),
    "{outbox}_adopt_gone"(), "{outbox}_adopt_dead"(), "{outbox}_adopt_resolved"(),
    "{outbox}_adopt_headers"(text) CASCADE;
DROP INDEX IF EXISTS "{outbox}_adopted";
