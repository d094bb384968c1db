-- notify = false.
DROP TRIGGER IF EXISTS "{outbox}_notify" ON "{outbox}";
DROP FUNCTION IF EXISTS "{outbox}_notify"();
