-- dedupe = a duration: maintenance deletes request ids by age.
DROP TRIGGER IF EXISTS "{outbox}_forget" ON "{outbox}";
DROP FUNCTION IF EXISTS "{outbox}_forget"();
