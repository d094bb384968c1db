-- Age in ms; consumer, twice (NULL: all); maximum rows. Resolved dead letters only.
DELETE FROM postrider_inbox_dlq
WHERE resolved_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND (? IS NULL OR consumer = ?)
ORDER BY id LIMIT ?
