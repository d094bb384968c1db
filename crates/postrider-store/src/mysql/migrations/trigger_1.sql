-- Does three things for every new row, with the definer's grants, whichever program inserts it. A
-- repeated request id fails with 1062, which names `{outbox}_keys`. A retry of a dead letter keeps
-- its request id, and is not a repeat. The ledger gets an entry. And if append_all has set the
-- variable to a text, the id is added to it: the ids of a multi-row INSERT need not be consecutive.
CREATE TRIGGER /*M! IF NOT EXISTS */ `{outbox}_appended` AFTER INSERT ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.request_id IS NOT NULL THEN
        IF NEW.redrive_count > 0 THEN
            INSERT IGNORE INTO `{outbox}_keys` (request_id, id) VALUES (NEW.request_id, NEW.id);
        ELSE
            INSERT INTO `{outbox}_keys` (request_id, id) VALUES (NEW.request_id, NEW.id);
        END IF;
    END IF;
    INSERT INTO `{outbox}_ledger_entries` (minute, event_type, kind, count, id_sum)
    VALUES (CAST(DATE_FORMAT(NEW.created_at, '%Y-%m-%d %H:%i:00') AS DATETIME),
        NEW.event_type, 'appended', 1, NEW.id);
    IF LENGTH(@postrider_ids) < 20000 THEN
        SET @postrider_ids = CONCAT(@postrider_ids, NEW.id, ',');
    END IF;
END
