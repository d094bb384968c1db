-- name: horizon_last_id
-- The last id assigned, committed or not: the table's counter in memory, including open
-- transactions. On MySQL it is NULL before the first id, a value cached for a day unless the session
-- turns that off, and an old one for a table that is not open, such as after a restart: so the
-- statement opens it.
SELECT CAST(COALESCE(AUTO_INCREMENT, 1) AS SIGNED) - 1 AS last_id
    /*!80000 , (SELECT 1 FROM `{outbox}` LIMIT 1) AS open_table */
FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{outbox}'

-- name: next_id_step
-- The last id of the next step of a walk: from (excluded), maximum rows.
SELECT MAX(id) FROM (SELECT id FROM `{outbox}` WHERE id > ? ORDER BY id LIMIT ?) AS step

-- name: horizon_writers
-- Transactions of the whole server that may have taken an id and not committed. An INSERT gets its
-- transaction id and locks its table microseconds after it took its row id. This connection is
-- listed with the text of its query, which shows how old the list is: see writers.rs.
SELECT CAST(trx_id AS CHAR) AS writer,
    CASE WHEN trx_mysql_thread_id = CONNECTION_ID() THEN trx_query END AS own_query
FROM information_schema.INNODB_TRX
WHERE trx_mysql_thread_id = CONNECTION_ID()
   OR (trx_id <> 0 AND (trx_rows_modified > 0 OR trx_lock_structs > 0))
