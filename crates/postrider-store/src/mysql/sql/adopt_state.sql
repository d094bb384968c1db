-- Writes the state of an event to its row. A claim skips a row that another session has locked:
-- waiting for it would stop the claims of all others. The next change updates the row.
SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR
CREATE OR REPLACE TRIGGER `{outbox}_adopt_state` AFTER UPDATE ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND ({changed}) AND (NEW.status = 'FAILED' OR EXISTS (
        SELECT 1 FROM `{adopted}` WHERE {id} = {row} FOR UPDATE SKIP LOCKED
    )) THEN
    {show}
    END IF;
END
