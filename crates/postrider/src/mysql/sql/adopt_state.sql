-- The state of an event, shown in its row. A claim leaves a row alone that somebody else holds: the
-- wait for it would stop the claims of all others. The row is brought up to date by what follows.
SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR
CREATE OR REPLACE TRIGGER `{outbox}_adopt_state` AFTER UPDATE ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND ({changed}) AND (NEW.status = 'FAILED' OR EXISTS (
        SELECT 1 FROM `{adopted}` WHERE {id} = {row} FOR UPDATE SKIP LOCKED
    )) THEN
    {show}
    END IF;
END
