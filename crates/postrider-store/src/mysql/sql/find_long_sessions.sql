-- Age in seconds. Transactions that keep purge from removing rows delivered since. The times in the
-- list are in the server's own time zone.
SELECT trx_mysql_thread_id, COALESCE(p.USER, ''), TIMESTAMPDIFF(SECOND, trx_started, NOW())
FROM information_schema.INNODB_TRX LEFT JOIN information_schema.PROCESSLIST AS p
    ON p.ID = trx_mysql_thread_id
WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL ? SECOND
ORDER BY trx_started
