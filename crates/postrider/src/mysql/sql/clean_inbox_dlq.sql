-- Age in ms; whose, twice, NULL: of all; how many. Only what somebody resolved.
DELETE FROM postrider_inbox_dlq
WHERE resolved_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND (? IS NULL OR consumer = ?)
ORDER BY id LIMIT ?
