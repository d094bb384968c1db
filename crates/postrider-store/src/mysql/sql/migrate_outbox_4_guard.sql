-- The relay's columns belong to the relay: values that an INSERT sets there are reset. The two
-- other counts are set by retries of dead letters, fan-out and adopted tables; the GRANTs keep
-- applications from setting them.
CREATE TRIGGER IF NOT EXISTS `{outbox}_guard` BEFORE INSERT ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.status <> 'PENDING' OR NEW.crash_count <> 0 OR NEW.version <> 0
        OR NEW.locked_by IS NOT NULL OR NEW.locked_at IS NOT NULL OR NEW.last_error IS NOT NULL
        OR NEW.dead_reason IS NOT NULL OR NEW.response IS NOT NULL THEN
        SET NEW.status = 'PENDING', NEW.crash_count = 0, NEW.version = 0, NEW.locked_by = NULL,
            NEW.locked_at = NULL, NEW.last_error = NULL, NEW.dead_reason = NULL, NEW.response = NULL;
    END IF;
    -- The largest id would be the last one: the next INSERT finds none above it.
    IF NEW.id NOT BETWEEN 0 AND 4611686018427387904 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'id is assigned by the database only';
    END IF;
END
