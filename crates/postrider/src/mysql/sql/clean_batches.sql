-- Buffer, age in ms, maximum rows. A dead batch is kept until an operator imports it.
DELETE FROM postrider_buffer_batches
WHERE buffer = ? AND recorded_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND state <> 'dead'
ORDER BY recorded_at LIMIT ?
