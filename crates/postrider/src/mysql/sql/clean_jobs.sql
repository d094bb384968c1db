-- Outbox, age in ms. Only jobs that are done: one that stopped or failed can still be resumed.
DELETE FROM postrider_jobs
WHERE outbox = ? AND state = 'done'
  AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
