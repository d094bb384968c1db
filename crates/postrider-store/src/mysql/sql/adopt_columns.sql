-- The columns of a table, with the properties that a mapping needs. No rows: the table does not
-- exist.
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
    EXISTS (
        SELECT 1 FROM information_schema.CHECK_CONSTRAINTS AS k
        WHERE k.CONSTRAINT_SCHEMA = DATABASE() AND k.TABLE_NAME = ?
          AND k.CHECK_CLAUSE = CONCAT('json_valid(`', c.COLUMN_NAME, '`)')
    ) AS is_json
FROM information_schema.COLUMNS AS c
WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION
