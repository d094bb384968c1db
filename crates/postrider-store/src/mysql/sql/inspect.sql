-- name: failed_rows
-- Maximum rows. By the index of waiting rows, soonest due first: it has failed rows and also
-- deferred ones, of which an outage creates millions.
SELECT CAST(COALESCE(SUM(status = 'FAILED'), 0) AS SIGNED) AS failed, COUNT(*) AS seen
FROM (
    SELECT status FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue = 0 AND next_retry_at IS NOT NULL ORDER BY next_retry_at, id LIMIT ?
) AS waiting

-- name: live_states
-- Maximum rows, oldest first.
SELECT event_type, status, count(*) FROM (
    SELECT event_type, status FROM `{outbox}` ORDER BY id LIMIT ?
) AS oldest GROUP BY event_type, status ORDER BY event_type, status

-- name: unresolved_types
-- Maximum rows, newest first.
SELECT event_type, count(*) FROM (
    SELECT event_type FROM `{outbox}_dlq` WHERE resolved = 0 ORDER BY id DESC LIMIT ?
) AS newest GROUP BY event_type ORDER BY count(*) DESC, event_type

-- name: find_long_sessions
-- Age in seconds. Transactions that keep purge from removing rows delivered since. The times in the
-- list are in the server's own time zone.
SELECT trx_mysql_thread_id, COALESCE(p.USER, ''), TIMESTAMPDIFF(SECOND, trx_started, NOW())
FROM information_schema.INNODB_TRX LEFT JOIN information_schema.PROCESSLIST AS p
    ON p.ID = trx_mysql_thread_id
WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_started < NOW() - INTERVAL ? SECOND
ORDER BY trx_started
