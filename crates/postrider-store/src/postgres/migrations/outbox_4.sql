-- name: letters
-- A dead letter keeps the expiry time of its event, like every other field. Only if the column is
-- missing: an ALTER waits for every open transaction on the table.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_attribute
                   WHERE attrelid = '"{outbox}_dlq"'::regclass AND attname = 'expires_at') THEN
        ALTER TABLE "{outbox}_dlq" ADD COLUMN expires_at timestamptz;
    END IF;
END $$;

-- name: closed
-- Dead letters that were resolved and cleaned up. Importing a backup file does not restore them.
CREATE TABLE IF NOT EXISTS "{outbox}_closed" (
    original_id bigint      NOT NULL,
    event_id    uuid        NOT NULL,
    closed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (original_id, event_id)
);
CREATE INDEX IF NOT EXISTS "{outbox}_closed_age" ON "{outbox}_closed" (closed_at);

-- name: guard
-- One bad row must not stop the others. The relay's columns belong to the relay: values that an
-- INSERT sets there are reset. Values that the relay and operators could not handle are refused:
-- 'infinity', for example, cannot be read back. A role with UPDATE on the table may also insert the
-- two counts: retries of dead letters, fan-out and adopted tables set them.
-- One trigger without WHEN, because the server parses a WHEN again in every statement (9 us), and
-- the body of a function once per session (0.8 us).
-- Operators are named in full, because an application may put some of its own into its search_path;
-- a SET of the function would cost each ordinary row 0.9 us more.
CREATE OR REPLACE FUNCTION "{outbox}_guard"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    path text;
BEGIN
    IF NEW.id OPERATOR(pg_catalog.>=) 1
        AND NEW.id OPERATOR(pg_catalog.<=) 4611686018427387904
        AND pg_catalog.octet_length(NEW.payload) OPERATOR(pg_catalog.<=) 16777215
        AND (NEW.headers IS NULL
            OR (pg_catalog.pg_column_size(NEW.headers) OPERATOR(pg_catalog.<=) 16777215
                AND pg_catalog.jsonb_typeof(NEW.headers) OPERATOR(pg_catalog.=) 'object'))
        AND NEW.created_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00'
        AND NEW.created_at OPERATOR(pg_catalog.<=) '9999-12-31 23:59:59.999999+00'
        AND NEW.updated_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00'
        AND NEW.updated_at OPERATOR(pg_catalog.<=) '9999-12-31 23:59:59.999999+00'
        AND (NEW.next_retry_at IS NULL OR (NEW.next_retry_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00'
            AND NEW.next_retry_at OPERATOR(pg_catalog.<=) '9999-12-31 23:59:59.999999+00'))
        AND (NEW.expires_at IS NULL OR (NEW.expires_at OPERATOR(pg_catalog.>=) '0001-01-01 00:00:00+00'
            AND NEW.expires_at OPERATOR(pg_catalog.<=) '9999-12-31 23:59:59.999999+00'))
        AND (NEW.max_retries IS NULL OR (NEW.max_retries OPERATOR(pg_catalog.>=) 1
            AND NEW.max_retries OPERATOR(pg_catalog.<=) 1000))
        AND NEW.status OPERATOR(pg_catalog.=) 'PENDING'
        AND NEW.retry_count OPERATOR(pg_catalog.=) 0 AND NEW.redrive_count OPERATOR(pg_catalog.=) 0
        AND NEW.crash_count OPERATOR(pg_catalog.=) 0 AND NEW.version OPERATOR(pg_catalog.=) 0
        AND NEW.locked_by IS NULL AND NEW.locked_at IS NULL AND NEW.last_error IS NULL
        AND NEW.dead_reason IS NULL AND NEW.response IS NULL
    THEN
        RETURN NEW;
    END IF;
    path := pg_catalog.current_setting('search_path');
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF NEW.id NOT BETWEEN 1 AND 4611686018427387904 THEN
        RAISE check_violation USING MESSAGE = 'id is assigned by the database only';
    END IF;
    IF octet_length(NEW.payload) > 16777215 OR pg_column_size(NEW.headers) > 16777215 THEN
        RAISE check_violation USING MESSAGE = 'payload and headers may have 16,777,215 bytes each';
    END IF;
    IF jsonb_typeof(NEW.headers) <> 'object' THEN
        RAISE check_violation USING MESSAGE = 'headers must be a JSON object';
    END IF;
    NEW.status := 'PENDING';
    NEW.crash_count := 0;
    NEW.version := 0;
    NEW.locked_by := NULL;
    NEW.locked_at := NULL;
    NEW.last_error := NULL;
    NEW.dead_reason := NULL;
    NEW.response := NULL;
    IF NOT pg_catalog.has_table_privilege(TG_RELID, 'UPDATE') THEN
        NEW.retry_count := 0;
        NEW.redrive_count := 0;
    END IF;
    IF NEW.created_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR NEW.updated_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR NEW.next_retry_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR NEW.expires_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
    THEN
        RAISE check_violation USING MESSAGE = 'times must be in the years 1 to 9999';
    END IF;
    IF NEW.max_retries NOT BETWEEN 1 AND 1000 THEN
        RAISE check_violation USING MESSAGE = 'max_retries must be between 1 and 1000';
    END IF;
    IF NEW.retry_count NOT BETWEEN 0 AND 1000000 OR NEW.redrive_count NOT BETWEEN 0 AND 1000000 THEN
        RAISE check_violation USING MESSAGE = 'retry_count and redrive_count must be between 0 and 1000000';
    END IF;
    PERFORM pg_catalog.set_config('search_path', path, true);
    RETURN NEW;
END $$;

-- Runs before the other triggers: they fire in the order of their names.
CREATE OR REPLACE TRIGGER "{outbox}_guard" BEFORE INSERT ON "{outbox}"
    FOR EACH ROW EXECUTE FUNCTION "{outbox}_guard"();

CREATE OR REPLACE FUNCTION "{outbox}_refuse"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING
        MESSAGE = format('row %s would have a state that no relay can handle', NEW.id),
        HINT = 'Only relays change rows of this table; operators use postrider dlq, events and outbox.';
END $$;

-- Checks updates that somebody makes by hand. AFTER, because a trigger that runs before an update
-- locks each row once more. Two triggers by the columns that a statement sets: a claim sets those of
-- the second one, for thousands of rows, which has few comparisons and refuses no row for what was
-- in it before the claim. Only if they are missing: old tables are corrected at the same time, and an ALTER waits for every open transaction on the table,
-- while all other sessions wait behind it.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_trigger
               WHERE tgrelid = '"{outbox}"'::regclass AND tgname = '{outbox}_refuse_state') THEN
        RETURN;
    END IF;
    ALTER TABLE "{outbox}"
        DROP CONSTRAINT IF EXISTS "{outbox}_ck_times", DROP CONSTRAINT IF EXISTS "{outbox}_ck_counts",
        DROP CONSTRAINT IF EXISTS "{outbox}_ck_state",
        DROP CONSTRAINT IF EXISTS "{outbox}_status_check",
        DROP CONSTRAINT IF EXISTS "{outbox}_headers_check",
        DROP COLUMN IF EXISTS lane;
    UPDATE "{outbox}" SET
        created_at = least(greatest(created_at, '0001-01-01 00:00:00+00'),
            '9999-12-31 23:59:59.999999+00'),
        updated_at = least(greatest(updated_at, '0001-01-01 00:00:00+00'),
            '9999-12-31 23:59:59.999999+00'),
        -- A time after the last year means never.
        expires_at = CASE WHEN expires_at <= '9999-12-31 23:59:59.999999+00'
            THEN greatest(expires_at, '0001-01-01 00:00:00+00') END,
        next_retry_at = CASE WHEN next_retry_at IS NOT NULL
            THEN least(greatest(next_retry_at, '0001-01-01 00:00:00+00'),
                '9999-12-31 23:59:59.999999+00')
            WHEN status IN ('FAILED', 'DEAD_LETTER') THEN now() END,
        locked_at = CASE WHEN locked_at BETWEEN '0001-01-01 00:00:00+00' AND now() THEN locked_at END,
        locked_by = CASE WHEN status = 'PROCESSING' THEN locked_by END,
        retry_count = least(greatest(retry_count, 0), 1000000),
        redrive_count = least(greatest(redrive_count, 0), 1000000),
        crash_count = least(greatest(crash_count, 0), 1000000),
        max_retries = CASE WHEN max_retries IS NOT NULL
            THEN least(greatest(max_retries, 1), 1000) END,
        version = CASE WHEN version BETWEEN 0 AND 9007199254740990 THEN version + 1 ELSE 1 END,
        status = CASE WHEN status NOT IN ('PENDING', 'PROCESSING', 'FAILED', 'DEAD_LETTER')
            OR (status = 'DEAD_LETTER' AND dead_reason IS NULL) THEN 'PENDING' ELSE status END,
        dead_reason = CASE WHEN status <> 'DEAD_LETTER' OR dead_reason IS NULL THEN NULL
            WHEN dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
            THEN dead_reason ELSE 'integrity' END
    WHERE created_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR updated_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR next_retry_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR expires_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR locked_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        OR retry_count NOT BETWEEN 0 AND 1000000 OR redrive_count NOT BETWEEN 0 AND 1000000
        OR crash_count NOT BETWEEN 0 AND 1000000 OR max_retries NOT BETWEEN 1 AND 1000
        OR version NOT BETWEEN 0 AND 9007199254740991
        OR status NOT IN ('PENDING', 'PROCESSING', 'FAILED', 'DEAD_LETTER')
        OR (status = 'FAILED' AND next_retry_at IS NULL)
        OR (status <> 'PROCESSING' AND locked_by IS NOT NULL)
        OR (status = 'DEAD_LETTER') <> (dead_reason IS NOT NULL)
        OR dead_reason NOT IN
            ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash');
    -- The ledger counted them at their old times.
    WITH odd AS (
        DELETE FROM "{outbox}_ledger"
        WHERE minute NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
        RETURNING *
    )
    INSERT INTO "{outbox}_ledger_entries" SELECT * FROM odd;
    UPDATE "{outbox}_ledger_entries"
    SET minute = least(greatest(minute, '0001-01-01 00:00:00+00'), '9999-12-31 23:59:00+00')
    WHERE minute NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00';
    DROP TRIGGER IF EXISTS "{outbox}_refuse" ON "{outbox}";
    CREATE TRIGGER "{outbox}_refuse_update" AFTER UPDATE OF
        created_at, updated_at, next_retry_at, expires_at, retry_count, redrive_count, crash_count,
        max_retries, dead_reason ON "{outbox}" FOR EACH ROW
        WHEN (NEW.crash_count NOT BETWEEN 0 AND 1000000
            OR (NEW.status = 'FAILED' AND NEW.next_retry_at IS NULL)
            OR (NEW.status = 'DEAD_LETTER') <> (NEW.dead_reason IS NOT NULL)
            OR NEW.dead_reason NOT IN
                ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
            -- Only if these are changed: settling many rows must not fail because of one.
            OR ((NEW.created_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
                OR NEW.updated_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
                OR NEW.next_retry_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
                OR NEW.expires_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00'
                OR NEW.retry_count NOT BETWEEN 0 AND 1000000
                OR NEW.redrive_count NOT BETWEEN 0 AND 1000000
                OR NEW.max_retries NOT BETWEEN 1 AND 1000)
                AND (NEW.created_at, NEW.updated_at, NEW.next_retry_at, NEW.expires_at,
                    NEW.retry_count, NEW.redrive_count, NEW.max_retries)
                IS DISTINCT FROM (OLD.created_at, OLD.updated_at, OLD.next_retry_at,
                    OLD.expires_at, OLD.retry_count, OLD.redrive_count, OLD.max_retries)))
        EXECUTE FUNCTION "{outbox}_refuse"();
    CREATE TRIGGER "{outbox}_refuse_state" AFTER UPDATE OF
        status, locked_by, locked_at, version ON "{outbox}" FOR EACH ROW
        WHEN (NEW.version NOT BETWEEN 0 AND 9007199254740991
            OR (NEW.status <> 'PROCESSING' AND (NEW.locked_by IS NOT NULL
                OR NEW.status NOT IN ('PENDING', 'FAILED', 'DEAD_LETTER')
                OR (NEW.status = 'FAILED' AND NEW.next_retry_at IS NULL)
                OR (NEW.status = 'DEAD_LETTER') <> (NEW.dead_reason IS NOT NULL)))
            OR NEW.locked_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00')
        EXECUTE FUNCTION "{outbox}_refuse"();
END $$;
