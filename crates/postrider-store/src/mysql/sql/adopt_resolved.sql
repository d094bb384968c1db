-- Writes an operator's action on a dead letter to the adopted tables.
SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR
CREATE OR REPLACE TRIGGER `{outbox}_adopt_resolved` AFTER UPDATE ON `{outbox}_dlq` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND NEW.resolved <> OLD.resolved THEN
    {show}
    END IF;
END
