-- name: adopt_grants
-- Grants for the adopted table. The application needs no new ones. The triggers run with the grants
-- of the role that migrates, which needs the first line if another role owns the table:
--   GRANT TRIGGER, SELECT, UPDATE, DELETE ON "{adopted}" TO owner;{letters}
--   GRANT SELECT, UPDATE, DELETE ON "{adopted}" TO relay;         -- deletes delivered rows, by age

-- name: adopt_expired
-- Counts the rows that adopt_clean would delete: $1 age in ms.
SELECT count(*) FROM "{adopted}" AS f
WHERE {delivered} AND {at} < now() - $1 * interval '1 millisecond'

-- name: adopt_clean
-- $1 age in ms, $2 maximum rows.
DELETE FROM "{adopted}" WHERE {id} IN (
    SELECT f.{id} FROM "{adopted}" AS f
    WHERE {delivered} AND {at} < now() - $1 * interval '1 millisecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
)

-- name: adopt_remove
-- Drops the triggers with their functions, including those on the adopted table, which is not
-- changed.
DROP FUNCTION IF EXISTS "{outbox}_adopt_append"(), "{outbox}_adopt_state"(),
    "{outbox}_adopt_gone"(), "{outbox}_adopt_dead"(), "{outbox}_adopt_resolved"(),
    "{outbox}_adopt_headers"(text) CASCADE;
DROP INDEX IF EXISTS "{outbox}_adopted";

-- name: adopt_outbox
-- Progress of the import of an adopted dead-letter table. Dead letters up to letters_until are from
-- before the adoption; later ones are copies of the outbox's own, until the import has ended.
CREATE TABLE IF NOT EXISTS postrider_adoptions (
    outbox        varchar(40) NOT NULL,
    letters_table varchar(63) NOT NULL,
    letters_id    varchar(63) NOT NULL,
    letters_until bigint      NOT NULL,
    letters_done  bigint      NOT NULL DEFAULT 0,
    ended         boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (outbox, letters_table)
);

-- Prefix of the event ids that are made from integer ids, generated at the first adoption.
CREATE TABLE IF NOT EXISTS postrider_adopted_ids (
    outbox varchar(40) PRIMARY KEY,
    prefix varchar(13) NOT NULL CHECK (prefix ~ '^[0-9a-f]{8}-[0-9a-f]{4}$')
);

-- An import looks up by event id which events are in the outbox already.
CREATE INDEX IF NOT EXISTS "{outbox}_adopted" ON "{outbox}" (event_id);

-- name: adopt_headers
-- Converts any text of a column. A text that is not a JSON object becomes the header `headers`: it
-- must neither be lost nor make the application's insert fail.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_headers"(stored text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    parsed jsonb;
BEGIN
    IF stored IS NULL OR trim(stored) IN ('', 'null') THEN
        RETURN NULL;
    END IF;
    BEGIN
        parsed := stored::jsonb;
    EXCEPTION WHEN data_exception THEN
        parsed := NULL;
    END;
    IF jsonb_typeof(parsed) = 'object' THEN
        RETURN parsed;
    END IF;
    RETURN jsonb_build_object('headers', stored);
END $$;

-- name: adopt_check

    IF EXISTS (SELECT 1 FROM inserted AS f WHERE f.{id}::text <> f.{id}::uuid::text) THEN
        RAISE check_violation USING MESSAGE = 'the id of this row is not a UUID in lower case';
    END IF;

-- name: adopt_append
-- Appends the rows that are inserted into the adopted table as events, in the application's own
-- transaction. Once per statement: row by row, 50,000 rows of one INSERT took 11 s. A repeated
-- request id, which the outbox skips, fails like the table's own unique index.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_append"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    appended bigint;
BEGIN{check}
    INSERT INTO "{outbox}" ({columns})
    SELECT {values}
    FROM inserted AS f WHERE {due} ORDER BY f.{id};
    GET DIAGNOSTICS appended = ROW_COUNT;
    IF appended < (SELECT count(*) FROM inserted AS f WHERE {due}) THEN
        RAISE unique_violation USING
            MESSAGE = 'a request id was used before, within the window of outbox {name}',
            CONSTRAINT = '{outbox}_keys_pkey';
    END IF;
    RETURN NULL;
END $$;

-- name: adopt_state
-- Writes the state of an event to its row. A claim skips a row that another session has locked:
-- waiting for it would stop the claims of all others. The next change updates the row.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_state"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NEW.status <> 'FAILED' THEN
        PERFORM 1 FROM "{adopted}" WHERE {id} = {row} FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_state" AFTER UPDATE ON "{outbox}" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}' AND ({changed}))
    EXECUTE FUNCTION "{outbox}_adopt_state"();

-- name: adopt_gone
-- An event that leaves the outbox was delivered, unless it leaves together with its dead letter.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_gone"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM "{outbox}_dlq"
               WHERE original_id = OLD.id AND event_id = OLD.event_id) THEN
        RETURN NULL;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_gone" AFTER DELETE ON "{outbox}" FOR EACH ROW
    WHEN (OLD.event_id::text LIKE '{identities}') EXECUTE FUNCTION "{outbox}_adopt_gone"();

-- name: adopt_dead
-- Copies a dead letter to the adopted table's own dead letters. A dead letter that was imported
-- from there is not written back.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_dead"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF current_setting('postrider.adopting', true) = 'on' THEN
        RETURN NULL;
    END IF;
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_dead" AFTER INSERT ON "{outbox}_dlq" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}') EXECUTE FUNCTION "{outbox}_adopt_dead"();

-- name: adopt_resolved
-- Writes an operator's action on a dead letter to the adopted tables.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_resolved"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    {show}
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER "{outbox}_adopt_resolved" AFTER UPDATE ON "{outbox}_dlq" FOR EACH ROW
    WHEN (NEW.event_id::text LIKE '{identities}' AND NEW.resolved <> OLD.resolved)
    EXECUTE FUNCTION "{outbox}_adopt_resolved"();

-- name: adopt_append_trigger
CREATE OR REPLACE TRIGGER "{outbox}_adopt_append" AFTER INSERT ON "{adopted}"
    REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION "{outbox}_adopt_append"();

-- name: adopt_columns
-- The columns of a table ($1), with the properties that a mapping needs. No rows: the table does
-- not exist.
SELECT a.attname::text AS name, t.typname::text AS base, t.typtype::text AS class,
    format_type(a.atttypid, a.atttypmod) AS type_name,
    CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4
         THEN (a.atttypmod - 4)::bigint END AS chars_max,
    a.attnotnull AS not_null, a.atthasdef OR a.attidentity <> '' AS has_default,
    EXISTS (
        SELECT 1 FROM pg_index AS i
        WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
          AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum
    ) AS is_unique,
    ARRAY(SELECT e.enumlabel::text FROM pg_enum AS e WHERE e.enumtypid = t.oid
        ORDER BY e.enumsortorder) AS words
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(quote_ident($1)) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum

-- name: adopt_window
-- The next rows of the adopted table by id: $1 from (excluded), $2 maximum rows.
SELECT f.{id}::text FROM "{adopted}" AS f WHERE f.{id} > $1::{type} ORDER BY f.{id} LIMIT $2

-- name: adopt_import
-- The due rows of one window that are not in the outbox yet: $1 from (excluded), $2 to (included).
INSERT INTO "{outbox}" ({columns})
SELECT {values}
FROM "{adopted}" AS f
WHERE f.{id} > $1::{type} AND f.{id} <= $2::{type} AND {due}
  AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.event_id = {identity}){repeats}{given_up}
ORDER BY f.{id}

-- name: adopt_letter_window
-- The next unresolved dead letters: $1 from (excluded), $2 to (included), $3 maximum rows.
SELECT f.{id}::bigint FROM "{letters}" AS f
WHERE f.{id} > $1 AND f.{id} <= $2 AND {unresolved} ORDER BY f.{id} LIMIT $3

-- name: adopt_letter
-- Imports one dead letter ($1) from before the adoption, unless its event is known or was retried
-- since. One per statement: a table without `resolved` may have several dead letters of one event.
INSERT INTO "{outbox}_dlq" ({columns})
SELECT {values}
FROM "{letters}" AS f
WHERE f.{id} = $1
  AND NOT EXISTS (SELECT 1 FROM "{outbox}_dlq" AS d WHERE d.event_id = {identity})
  AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.event_id = {identity}){alive}
ON CONFLICT (original_id, event_id) DO NOTHING

-- name: adopt_rules
-- Unique indexes (true) and foreign keys (false) of a table ($1), with their columns.
SELECT i.indexrelid::regclass::text, true, ARRAY(
    SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) AND a.attnum > 0)
FROM pg_index AS i
WHERE i.indrelid = to_regclass(quote_ident($1)) AND i.indisunique
UNION ALL
SELECT c.conname::text, false, ARRAY(
    SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
FROM pg_constraint AS c
WHERE c.conrelid = to_regclass(quote_ident($1)) AND c.contype = 'f'

-- name: adopt_status_checks
-- Checks of a table ($1) that only concern one column ($2), as expressions.
SELECT c.conname::text, pg_get_expr(c.conbin, c.conrelid)
FROM pg_constraint AS c JOIN pg_attribute AS a
    ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
WHERE c.conrelid = to_regclass(quote_ident($1)) AND c.contype = 'c' AND a.attname = $2
