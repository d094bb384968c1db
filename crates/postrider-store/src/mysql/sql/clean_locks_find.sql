-- Locks that were last used before yesterday and that no session holds.
SELECT name FROM postrider_locks FORCE INDEX (postrider_locks_age)
WHERE used_on < UTC_DATE() - INTERVAL 1 DAY
ORDER BY used_on LIMIT ?
FOR UPDATE SKIP LOCKED
