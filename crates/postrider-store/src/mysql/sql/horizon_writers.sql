-- Transactions of the whole server that may have taken an id and not committed. An INSERT gets its
-- transaction id and locks its table microseconds after it took its row id. This connection is
-- listed with the text of its query, which shows how old the list is: see writers.rs.
SELECT CAST(trx_id AS CHAR) AS writer,
    CASE WHEN trx_mysql_thread_id = CONNECTION_ID() THEN trx_query END AS own_query
FROM information_schema.INNODB_TRX
WHERE trx_mysql_thread_id = CONNECTION_ID()
   OR (trx_id <> 0 AND (trx_rows_modified > 0 OR trx_lock_structs > 0))
