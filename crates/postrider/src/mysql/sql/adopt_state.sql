-- The state of an event, shown in its row.
CREATE OR REPLACE TRIGGER `{outbox}_adopt_state` AFTER UPDATE ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND ({changed}) THEN
    {show}
    END IF;
END
