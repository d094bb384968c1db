-- Copies a dead letter to the adopted table's own dead letters. A dead letter that was imported
-- from there is not written back.
SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR
CREATE OR REPLACE TRIGGER `{outbox}_adopt_dead` AFTER INSERT ON `{outbox}_dlq` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND @postrider_adopting IS NULL THEN
    {show}
    END IF;
END
