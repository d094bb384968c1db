-- name: letters
-- A dead letter keeps the expiry time of its event, like every other field. SQLite has no IF NOT
-- EXISTS here: runs only if the column is missing.
ALTER TABLE "{outbox}_dlq" ADD COLUMN expires_at TEXT;

-- name: correct
-- Corrects rows from before the guard, once. See migrate_outbox_4_guard.sql for the values refused
-- since.
UPDATE "{outbox}" SET
    next_retry_at = CASE WHEN next_retry_at IS NULL AND status IN ('FAILED', 'DEAD_LETTER')
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') ELSE next_retry_at END,
    status = CASE WHEN status = 'DEAD_LETTER' AND dead_reason IS NULL THEN 'PENDING' ELSE status END,
    dead_reason = CASE WHEN status <> 'DEAD_LETTER' OR dead_reason IS NULL THEN NULL
        WHEN dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
        THEN dead_reason ELSE 'integrity' END,
    updated_at = CASE WHEN updated_at NOT GLOB '????-??-??T??:??:??.???Z'
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') ELSE updated_at END,
    locked_at = CASE WHEN locked_at NOT GLOB '????-??-??T??:??:??.???Z' THEN NULL ELSE locked_at END,
    locked_by = CASE WHEN status = 'PROCESSING' AND typeof(locked_by) = 'text' THEN locked_by END,
    last_error = CASE WHEN typeof(last_error) = 'text' THEN last_error END,
    response = CASE WHEN typeof(response) = 'text' THEN response END,
    retry_count = min(max(CAST(retry_count AS INTEGER), 0), 1000000),
    redrive_count = min(max(CAST(redrive_count AS INTEGER), 0), 1000000),
    crash_count = min(max(CAST(crash_count AS INTEGER), 0), 1000000),
    max_retries = min(max(max_retries, 1), 1000),
    version = CASE WHEN typeof(version) = 'integer' AND version BETWEEN 0 AND 9007199254740990
        THEN version + 1 ELSE 1 END
WHERE typeof(retry_count) <> 'integer' OR retry_count NOT BETWEEN 0 AND 1000000
    OR typeof(redrive_count) <> 'integer' OR redrive_count NOT BETWEEN 0 AND 1000000
    OR typeof(crash_count) <> 'integer' OR crash_count NOT BETWEEN 0 AND 1000000
    OR typeof(version) <> 'integer' OR version NOT BETWEEN 0 AND 9007199254740991
    OR max_retries NOT BETWEEN 1 AND 1000
    OR typeof(locked_by) NOT IN ('text', 'null')
    OR typeof(last_error) NOT IN ('text', 'null')
    OR typeof(dead_reason) NOT IN ('text', 'null')
    OR typeof(response) NOT IN ('text', 'null')
    OR updated_at NOT GLOB '????-??-??T??:??:??.???Z'
    OR locked_at NOT GLOB '????-??-??T??:??:??.???Z'
    OR (status = 'FAILED' AND next_retry_at IS NULL)
    OR (status <> 'PROCESSING' AND locked_by IS NOT NULL)
    OR (status = 'DEAD_LETTER') <> (dead_reason IS NOT NULL)
    OR dead_reason NOT IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash');

-- name: closed
-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS "{outbox}_closed" (
    original_id INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    closed_at   TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (original_id, event_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS "{outbox}_closed_age" ON "{outbox}_closed" (closed_at);

-- name: guard
-- One bad row must not stop the others. SQLite accepts any value in any column, and a CHECK cannot
-- be added to an existing table; triggers whose conditions hardly ever hold do the same.

-- No id can follow the largest one, and the ledger adds up ids. Before the insert, an id assigned
-- by SQLite is not known yet, but one set by the program is.
DROP TRIGGER IF EXISTS "{outbox}_refuse_id";
CREATE TRIGGER "{outbox}_refuse_id" BEFORE INSERT ON "{outbox}"
WHEN NEW.id > 0 AND NEW.id > 1000000 + coalesce(
    (SELECT seq FROM sqlite_sequence WHERE name = '{outbox}'), 0)
BEGIN
    SELECT RAISE(ABORT, 'outbox: id is assigned by the database only');
END;

DROP TRIGGER IF EXISTS "{outbox}_refuse";
CREATE TRIGGER "{outbox}_refuse" AFTER INSERT ON "{outbox}"
WHEN NEW.id < 1
    OR typeof(NEW.retry_count) <> 'integer' OR NEW.retry_count NOT BETWEEN 0 AND 1000000
    OR typeof(NEW.redrive_count) <> 'integer' OR NEW.redrive_count NOT BETWEEN 0 AND 1000000
    OR NEW.max_retries NOT BETWEEN 1 AND 1000
BEGIN
    SELECT RAISE(ABORT, 'outbox: id, retry_count, redrive_count or max_retries is out of range');
END;

-- Without this check, an identity that is not UTF-8 would be read as another one, and its row would
-- not be found again.
DROP TRIGGER IF EXISTS "{outbox}_refuse_identity";
CREATE TRIGGER "{outbox}_refuse_identity" AFTER INSERT ON "{outbox}"
WHEN NEW.event_id GLOB '*[^ -~]*'
BEGIN
    SELECT RAISE(ABORT, 'outbox: event_id must be ASCII');
END;

-- The CHECK of the table accepts any year and day that SQLite can compute with: year 0, and 30
-- February for 1 March. With a modifier, strftime normalizes the date in every version of SQLite.
-- length() counts characters of a text, and bytes of a BLOB.
DROP TRIGGER IF EXISTS "{outbox}_refuse_value";
CREATE TRIGGER "{outbox}_refuse_value" AFTER INSERT ON "{outbox}"
WHEN length(CAST(NEW.payload AS BLOB)) > 16777215 OR length(CAST(NEW.headers AS BLOB)) > 16777215
    OR NEW.created_at < '0001' OR NEW.next_retry_at < '0001' OR NEW.expires_at < '0001'
    OR substr(NEW.created_at, 9, 2) > '28'
        AND strftime('%Y-%m-%d', NEW.created_at, '+0 days') <> substr(NEW.created_at, 1, 10)
    OR substr(NEW.next_retry_at, 9, 2) > '28'
        AND strftime('%Y-%m-%d', NEW.next_retry_at, '+0 days') <> substr(NEW.next_retry_at, 1, 10)
    OR substr(NEW.expires_at, 9, 2) > '28'
        AND strftime('%Y-%m-%d', NEW.expires_at, '+0 days') <> substr(NEW.expires_at, 1, 10)
BEGIN
    SELECT RAISE(ABORT, 'outbox: a time is not in the calendar, or payload or headers have 16 MiB');
END;

-- A row from before this check keeps its values, or no relay could settle it.
DROP TRIGGER IF EXISTS "{outbox}_refuse_new_value";
CREATE TRIGGER "{outbox}_refuse_new_value"
AFTER UPDATE OF payload, headers, created_at, next_retry_at, expires_at ON "{outbox}"
WHEN NEW.payload IS NOT OLD.payload AND length(CAST(NEW.payload AS BLOB)) > 16777215
    OR NEW.headers IS NOT OLD.headers AND length(CAST(NEW.headers AS BLOB)) > 16777215
    OR NEW.created_at IS NOT OLD.created_at AND (NEW.created_at < '0001'
        OR substr(NEW.created_at, 9, 2) > '28'
            AND strftime('%Y-%m-%d', NEW.created_at, '+0 days') <> substr(NEW.created_at, 1, 10))
    OR NEW.next_retry_at IS NOT OLD.next_retry_at AND (NEW.next_retry_at < '0001'
        OR substr(NEW.next_retry_at, 9, 2) > '28'
            AND strftime('%Y-%m-%d', NEW.next_retry_at, '+0 days') <> substr(NEW.next_retry_at, 1, 10))
    OR NEW.expires_at IS NOT OLD.expires_at AND (NEW.expires_at < '0001'
        OR substr(NEW.expires_at, 9, 2) > '28'
            AND strftime('%Y-%m-%d', NEW.expires_at, '+0 days') <> substr(NEW.expires_at, 1, 10))
BEGIN
    SELECT RAISE(ABORT, 'outbox: a time is not in the calendar, or payload or headers have 16 MiB');
END;

-- The relay's columns belong to the relay: values that an INSERT sets there are reset. The two
-- other counts are set by retries of dead letters and fan-out.
DROP TRIGGER IF EXISTS "{outbox}_guard";
CREATE TRIGGER "{outbox}_guard" AFTER INSERT ON "{outbox}"
WHEN NEW.status <> 'PENDING' OR NEW.crash_count IS NOT 0 OR NEW.version IS NOT 0
    OR NEW.locked_by IS NOT NULL OR NEW.locked_at IS NOT NULL OR NEW.last_error IS NOT NULL
    OR NEW.dead_reason IS NOT NULL OR NEW.response IS NOT NULL
    OR NEW.updated_at NOT GLOB '????-??-??T??:??:??.???Z'
BEGIN
    UPDATE "{outbox}" SET status = 'PENDING', crash_count = 0, version = 0, locked_by = NULL,
        locked_at = NULL, last_error = NULL, dead_reason = NULL, response = NULL,
        updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE id = NEW.id;
END;

-- Two triggers by the columns that a statement sets: a claim sets those of the second one, for
-- thousands of rows, and the checks of both took as long as the claim itself (1.9 us a row; now 0.4).
DROP TRIGGER IF EXISTS "{outbox}_refuse_update";
CREATE TRIGGER "{outbox}_refuse_update" AFTER UPDATE OF
    id, event_id, retry_count, redrive_count, crash_count, max_retries, last_error, dead_reason,
    response, updated_at ON "{outbox}"
WHEN NEW.id NOT BETWEEN 1 AND 4611686018427387904
    OR (NEW.event_id IS NOT OLD.event_id AND NEW.event_id GLOB '*[^ -~]*')
    OR typeof(NEW.retry_count) <> 'integer' OR NEW.retry_count NOT BETWEEN 0 AND 1000000
    OR typeof(NEW.redrive_count) <> 'integer' OR NEW.redrive_count NOT BETWEEN 0 AND 1000000
    OR typeof(NEW.crash_count) <> 'integer' OR NEW.crash_count NOT BETWEEN 0 AND 1000000
    OR NEW.max_retries NOT BETWEEN 1 AND 1000
    OR typeof(NEW.last_error) NOT IN ('text', 'null')
    OR typeof(NEW.dead_reason) NOT IN ('text', 'null')
    OR typeof(NEW.response) NOT IN ('text', 'null')
    OR NEW.updated_at NOT GLOB '????-??-??T??:??:??.???Z'
    OR NEW.dead_reason NOT IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
    OR (NEW.status = 'DEAD_LETTER') <> (NEW.dead_reason IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'outbox: the relay could not work with this value');
END;

DROP TRIGGER IF EXISTS "{outbox}_refuse_state";
CREATE TRIGGER "{outbox}_refuse_state" AFTER UPDATE OF
    status, locked_by, locked_at, version, next_retry_at ON "{outbox}"
WHEN typeof(NEW.version) <> 'integer' OR NEW.version NOT BETWEEN 0 AND 9007199254740991
    OR typeof(NEW.locked_by) NOT IN ('text', 'null')
    OR NEW.locked_at NOT GLOB '????-??-??T??:??:??.???Z'
    -- No claim is refused for what was in a row before it.
    OR NEW.status <> 'PROCESSING' AND (NEW.locked_by IS NOT NULL
        OR (NEW.status = 'FAILED' AND NEW.next_retry_at IS NULL)
        OR (NEW.status = 'DEAD_LETTER') <> (NEW.dead_reason IS NOT NULL))
BEGIN
    SELECT RAISE(ABORT, 'outbox: the relay could not work with this state');
END;
