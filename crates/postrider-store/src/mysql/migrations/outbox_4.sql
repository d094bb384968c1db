-- name: closed
-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS `{outbox}_closed` (
    original_id BIGINT      NOT NULL,
    event_id    CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    closed_at   DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    PRIMARY KEY (original_id, event_id),
    KEY `{outbox}_closed_age` (closed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4
    COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */;

-- name: letters
-- A dead letter keeps the expiry time of its event, like every other field. Runs only if the column
-- is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq` ADD COLUMN /*M! IF NOT EXISTS */ expires_at DATETIME(6);

-- name: checks
-- Refuses values that the relay and operators could not handle, also in updates: a zero date cannot
-- be read back, and a FAILED row without a time would never be due. Runs only if the checks are
-- missing: an ALTER waits for every open transaction on the table. On MariaDB, where there may be
-- rows of older programs, the ALTER does not check existing rows (it would copy the table); they are
-- corrected after it.
/*M! SET SESSION check_constraint_checks = 0 */;
ALTER TABLE `{outbox}`
    ADD CONSTRAINT `{outbox}_ck_times` CHECK (
        created_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(created_at) > 0 AND DAYOFMONTH(created_at) > 0
        AND updated_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(updated_at) > 0 AND DAYOFMONTH(updated_at) > 0
        AND next_retry_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(next_retry_at) > 0 AND DAYOFMONTH(next_retry_at) > 0
        AND expires_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(expires_at) > 0 AND DAYOFMONTH(expires_at) > 0
        AND locked_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'
        AND MONTH(locked_at) > 0 AND DAYOFMONTH(locked_at) > 0
    ),
    ADD CONSTRAINT `{outbox}_ck_counts` CHECK (
        retry_count BETWEEN 0 AND 1000000 AND redrive_count BETWEEN 0 AND 1000000
        AND crash_count BETWEEN 0 AND 1000000 AND max_retries BETWEEN 1 AND 1000
        AND version BETWEEN 0 AND 9007199254740991
    ),
    ADD CONSTRAINT `{outbox}_ck_state` CHECK (
        (status <> 'FAILED' OR next_retry_at IS NOT NULL)
            AND (status = 'PROCESSING' OR locked_by IS NULL)
        AND (status = 'DEAD_LETTER') = (dead_reason IS NOT NULL)
        AND dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
    );
/*M! SET SESSION check_constraint_checks = 1 */;

-- name: correct
-- Corrects rows from before the checks. The state comes first: an assignment sees those to its
-- left.
UPDATE `{outbox}` SET
    dead_reason = CASE WHEN status <> 'DEAD_LETTER' OR dead_reason IS NULL THEN NULL
        WHEN dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
        THEN dead_reason ELSE 'integrity' END,
    next_retry_at = CASE WHEN next_retry_at IS NOT NULL
        THEN CASE WHEN next_retry_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(next_retry_at) > 0 AND DAYOFMONTH(next_retry_at) > 0 THEN next_retry_at ELSE '0001-01-01' END
        WHEN status IN ('FAILED', 'DEAD_LETTER') THEN UTC_TIMESTAMP(6) END,
    status = CASE WHEN status = 'DEAD_LETTER' AND dead_reason IS NULL THEN 'PENDING' ELSE status END,
    created_at = CASE WHEN created_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(created_at) > 0 AND DAYOFMONTH(created_at) > 0 THEN created_at ELSE '0001-01-01' END,
    updated_at = CASE WHEN updated_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(updated_at) > 0 AND DAYOFMONTH(updated_at) > 0 THEN updated_at ELSE '0001-01-01' END,
    expires_at = CASE WHEN expires_at IS NOT NULL
        THEN CASE WHEN expires_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(expires_at) > 0 AND DAYOFMONTH(expires_at) > 0 THEN expires_at ELSE '0001-01-01' END END,
    locked_at = CASE WHEN locked_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(locked_at) > 0 AND DAYOFMONTH(locked_at) > 0 THEN locked_at ELSE NULL END,
    locked_by = CASE WHEN status = 'PROCESSING' THEN locked_by END,
    retry_count = LEAST(GREATEST(retry_count, 0), 1000000),
    redrive_count = LEAST(GREATEST(redrive_count, 0), 1000000),
    crash_count = LEAST(GREATEST(crash_count, 0), 1000000),
    max_retries = CASE WHEN max_retries IS NOT NULL THEN LEAST(GREATEST(max_retries, 1), 1000) END,
    version = CASE WHEN version BETWEEN 0 AND 9007199254740990 THEN version + 1 ELSE 1 END
WHERE NOT (created_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(created_at) > 0 AND DAYOFMONTH(created_at) > 0)
    OR NOT (updated_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(updated_at) > 0 AND DAYOFMONTH(updated_at) > 0)
    OR NOT (next_retry_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(next_retry_at) > 0 AND DAYOFMONTH(next_retry_at) > 0)
    OR NOT (expires_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(expires_at) > 0 AND DAYOFMONTH(expires_at) > 0)
    OR NOT (locked_at BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999' AND MONTH(locked_at) > 0 AND DAYOFMONTH(locked_at) > 0)
    OR retry_count NOT BETWEEN 0 AND 1000000 OR redrive_count NOT BETWEEN 0 AND 1000000
    OR crash_count NOT BETWEEN 0 AND 1000000 OR max_retries NOT BETWEEN 1 AND 1000
    OR version NOT BETWEEN 0 AND 9007199254740991
    OR (status = 'FAILED' AND next_retry_at IS NULL)
        OR (status <> 'PROCESSING' AND locked_by IS NOT NULL)
    OR (status = 'DEAD_LETTER') <> (dead_reason IS NOT NULL)
    OR dead_reason NOT IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash');
-- The ledger counted them at their old times.
INSERT INTO `{outbox}_ledger_entries` (minute, event_type, kind, count, id_sum)
SELECT '0001-01-01', event_type, kind, count, id_sum FROM `{outbox}_ledger` WHERE NOT (minute >= '0001-01-01' AND MONTH(minute) > 0 AND DAYOFMONTH(minute) > 0);
DELETE FROM `{outbox}_ledger` WHERE NOT (minute >= '0001-01-01' AND MONTH(minute) > 0 AND DAYOFMONTH(minute) > 0);
UPDATE `{outbox}_ledger_entries` SET minute = '0001-01-01' WHERE NOT (minute >= '0001-01-01' AND MONTH(minute) > 0 AND DAYOFMONTH(minute) > 0);

-- name: guard
-- The relay's columns belong to the relay: values that an INSERT sets there are reset. The two
-- other counts are set by retries of dead letters, fan-out and adopted tables; the GRANTs keep
-- applications from setting them.
CREATE TRIGGER /*M! IF NOT EXISTS */ `{outbox}_guard` BEFORE INSERT ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.status <> 'PENDING' OR NEW.crash_count <> 0 OR NEW.version <> 0
        OR NEW.locked_by IS NOT NULL OR NEW.locked_at IS NOT NULL OR NEW.last_error IS NOT NULL
        OR NEW.dead_reason IS NOT NULL OR NEW.response IS NOT NULL THEN
        SET NEW.status = 'PENDING', NEW.crash_count = 0, NEW.version = 0, NEW.locked_by = NULL,
            NEW.locked_at = NULL, NEW.last_error = NULL, NEW.dead_reason = NULL, NEW.response = NULL;
    END IF;
    -- A session may switch the table's checks off, and the relay could not change such a row later.
    /*M! IF @@SESSION.check_constraint_checks = 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'an outbox needs check_constraint_checks = 1';
    END IF; */
    -- The largest id would be the last one: the next INSERT finds none above it.
    IF NEW.id NOT BETWEEN 0 AND 4611686018427387904 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'id is assigned by the database only';
    END IF;
END
