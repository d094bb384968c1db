-- Locks that nobody used since yesterday, and that nobody has now.
SELECT name FROM postrider_locks FORCE INDEX (postrider_locks_age)
WHERE used_on < UTC_DATE() - INTERVAL 1 DAY
ORDER BY used_on LIMIT ?
FOR UPDATE SKIP LOCKED
