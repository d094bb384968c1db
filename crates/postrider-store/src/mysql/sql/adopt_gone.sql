-- An event that leaves the outbox was delivered, unless it leaves together with its dead letter.
SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR
CREATE OR REPLACE TRIGGER `{outbox}_adopt_gone` AFTER DELETE ON `{outbox}` FOR EACH ROW
BEGIN
    IF OLD.event_id LIKE '{identities}' AND NOT EXISTS (
        SELECT 1 FROM `{outbox}_dlq` WHERE original_id = OLD.id AND event_id = OLD.event_id
    ) THEN
    {show}
    END IF;
END
