-- name: adopt_outbox
-- Progress of the import of an adopted dead-letter table. Dead letters up to letters_until are from
-- before the adoption; later ones are copies of the outbox's own, until the import has ended.
CREATE TABLE IF NOT EXISTS postrider_adoptions (
    outbox        VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_table VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_id    VARCHAR(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    letters_until BIGINT      NOT NULL,
    letters_done  BIGINT      NOT NULL DEFAULT 0,
    ended         BOOLEAN     NOT NULL DEFAULT FALSE,
    PRIMARY KEY (outbox, letters_table)
) ENGINE = InnoDB;

-- Prefix of the event ids that are made from integer ids, generated at the first adoption.
CREATE TABLE IF NOT EXISTS postrider_adopted_ids (
    outbox VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    prefix VARCHAR(13) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (prefix REGEXP '^[0-9a-f]{8}-[0-9a-f]{4}$')
) ENGINE = InnoDB;

-- name: adopt_index
-- An import looks up by event id which events are in the outbox already. Runs only if the index is
-- missing.
CREATE INDEX /*M! IF NOT EXISTS */ `{outbox}_adopted` ON `{outbox}` (event_id);

-- name: adopt_grants
-- Grants for the adopted table. The application needs no new ones. The triggers run with the grants
-- of the user that migrates:
--   GRANT TRIGGER, SELECT, UPDATE, DELETE ON `{adopted}` TO owner;{letters}
--   GRANT SELECT, DELETE ON `{adopted}` TO relay;                 -- deletes delivered rows, by age

-- name: adopt_expired
-- Counts the rows that adopt_clean would delete. Parameter: age in ms.
SELECT COUNT(*) FROM `{adopted}` AS f
WHERE {delivered} AND {at} < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND

-- name: adopt_clean
-- Parameters: age in ms, maximum rows.
DELETE a FROM (
    SELECT f.{id} AS id FROM `{adopted}` AS f
    WHERE {delivered} AND {at} < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{adopted}` AS a ON a.{id} = old.id

-- name: adopt_remove
-- The adopted table is not changed. The index is created first and dropped last, so it shows
-- whether anything of an adoption exists, even if it is incomplete.
DROP TRIGGER IF EXISTS `{outbox}_adopt_append`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_state`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_dead`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_resolved`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_gone`;
DROP INDEX /*M! IF EXISTS */ `{outbox}_adopted` ON `{outbox}`;

-- name: adopt_state
-- Writes the state of an event to its row. A claim skips a row that another session has locked:
-- waiting for it would stop the claims of all others. The next change updates the row. In a trigger,
-- MySQL waits in spite of SKIP LOCKED: there, only failed attempts are written.
/*M! SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR */
CREATE /*M! OR REPLACE */ TRIGGER `{outbox}_adopt_state` AFTER UPDATE ON `{outbox}` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND ({changed}) AND (NEW.status = 'FAILED' /*M! OR EXISTS (
        SELECT 1 FROM `{adopted}` WHERE {id} = {row} FOR UPDATE SKIP LOCKED
    ) */) THEN
    {show}
    END IF;
END

-- name: adopt_dead
-- Copies a dead letter to the adopted table's own dead letters. A dead letter that was imported
-- from there is not written back.
/*M! SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR */
CREATE /*M! OR REPLACE */ TRIGGER `{outbox}_adopt_dead` AFTER INSERT ON `{outbox}_dlq` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND @postrider_adopting IS NULL THEN
    {show}
    END IF;
END

-- name: adopt_resolved
-- Writes an operator's action on a dead letter to the adopted tables.
/*M! SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR */
CREATE /*M! OR REPLACE */ TRIGGER `{outbox}_adopt_resolved` AFTER UPDATE ON `{outbox}_dlq` FOR EACH ROW
BEGIN
    IF NEW.event_id LIKE '{identities}' AND NEW.resolved <> OLD.resolved THEN
    {show}
    END IF;
END

-- name: adopt_gone
-- An event that leaves the outbox was delivered, unless it leaves together with its dead letter.
/*M! SET STATEMENT sql_mode = 'NO_ENGINE_SUBSTITUTION' FOR */
CREATE /*M! OR REPLACE */ TRIGGER `{outbox}_adopt_gone` AFTER DELETE ON `{outbox}` FOR EACH ROW
BEGIN
    IF OLD.event_id LIKE '{identities}' AND NOT EXISTS (
        SELECT 1 FROM `{outbox}_dlq` WHERE original_id = OLD.id AND event_id = OLD.event_id
    ) THEN
    {show}
    END IF;
END

-- name: adopt_check

    IF NOT NEW.{id} RLIKE '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the id of this row is not a UUID in lower case';
    END IF;

-- name: adopt_append
-- Appends each row that is inserted into the adopted table as an event, in the application's own
-- transaction. A repeated request id fails with 1062, like the table's own unique index.
CREATE /*M! OR REPLACE */ TRIGGER `{outbox}_adopt_append` AFTER INSERT ON `{adopted}` FOR EACH ROW
BEGIN{check}
    IF {due} THEN
        INSERT INTO `{outbox}` ({columns})
        VALUES ({values});
    END IF;
END

-- name: adopt_columns
-- The columns of a table, with the properties that a mapping needs. No rows: the table does not
-- exist. MariaDB's JSON is a text with a check; MySQL's is a type.
SELECT c.COLUMN_NAME AS name, c.DATA_TYPE AS base, c.COLUMN_TYPE AS type_name,
    CAST(CASE WHEN c.DATA_TYPE IN ('char', 'varchar') THEN c.CHARACTER_MAXIMUM_LENGTH END AS SIGNED)
        AS chars_max,
    CAST(CASE WHEN c.DATA_TYPE LIKE '%text' THEN c.CHARACTER_OCTET_LENGTH END AS SIGNED) AS bytes_max,
    c.CHARACTER_SET_NAME AS charset,
    c.IS_NULLABLE = 'NO' AS not_null,
    c.COLUMN_DEFAULT IS NOT NULL OR c.EXTRA LIKE '%auto_increment%' OR c.EXTRA LIKE '%GENERATED%'
        AS has_default,
    EXISTS (
        SELECT 1 FROM information_schema.STATISTICS AS s
        WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0
        GROUP BY s.INDEX_NAME
        HAVING COUNT(*) = 1 AND MAX(s.COLUMN_NAME) = c.COLUMN_NAME
    ) AS is_unique,
    /*!80000 (? IS NULL) *//*M! EXISTS (
        SELECT 1 FROM information_schema.CHECK_CONSTRAINTS AS k
        WHERE k.CONSTRAINT_SCHEMA = DATABASE() AND k.TABLE_NAME = ?
          AND k.CHECK_CLAUSE = CONCAT('json_valid(`', c.COLUMN_NAME, '`)')
    ) */ AS is_json
FROM information_schema.COLUMNS AS c
WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION

-- name: adopt_window
-- The next rows of the adopted table by id: from (excluded), maximum rows.
SELECT CAST(f.{id} AS CHAR(36)) FROM `{adopted}` AS f WHERE f.{id} > {own} ORDER BY f.{id} LIMIT ?

-- name: adopt_find
-- The due rows of one window that are not in the outbox yet: from (excluded), to (included).
-- Separate from the insert, because its trigger writes request ids, which this statement reads
-- (error 1442).
SELECT CAST(f.{id} AS CHAR(36)) FROM `{adopted}` AS f
WHERE f.{id} > {own} AND f.{id} <= {own} AND {due}
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){repeats}{given_up}
ORDER BY f.{id}

-- name: adopt_import
-- Imports the rows that adopt_find has found.
INSERT INTO `{outbox}` ({columns})
SELECT {values}
FROM `{adopted}` AS f WHERE f.{id} IN ({ids}) ORDER BY f.{id}

-- name: adopt_letter_window
-- The next unresolved dead letters: from (excluded), to (included), maximum rows.
SELECT CAST(f.{id} AS SIGNED) FROM `{letters}` AS f
WHERE f.{id} > ? AND f.{id} <= ? AND {unresolved} ORDER BY f.{id} LIMIT ?

-- name: adopt_letter
-- Imports one dead letter from before the adoption, unless its event is known or was retried since.
-- One per statement: a table without `resolved` may have several dead letters of one event.
INSERT INTO `{outbox}_dlq` ({columns})
SELECT {values}
FROM `{letters}` AS f
WHERE f.{id} = ?
  AND NOT EXISTS (SELECT 1 FROM `{outbox}_dlq` AS d WHERE d.event_id = {identity})
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){alive}

-- name: adopt_rules
-- Unique indexes (1) and foreign keys (0) of a table, with their columns.
SELECT s.INDEX_NAME AS name, 1 AS is_unique, CAST(GROUP_CONCAT(s.COLUMN_NAME) AS CHAR)
FROM information_schema.STATISTICS AS s
WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0
GROUP BY s.INDEX_NAME
UNION ALL
SELECT k.CONSTRAINT_NAME, 0, CAST(GROUP_CONCAT(k.COLUMN_NAME) AS CHAR)
FROM information_schema.KEY_COLUMN_USAGE AS k
WHERE k.TABLE_SCHEMA = DATABASE() AND k.TABLE_NAME = ? AND k.REFERENCED_TABLE_NAME IS NOT NULL
GROUP BY k.CONSTRAINT_NAME
