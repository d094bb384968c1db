-- Request ids past their window whose event has left the outbox: window in ms, maximum rows.
SELECT k.request_id FROM `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys_age`)
WHERE k.created_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.id = k.id)
ORDER BY k.created_at LIMIT ?
FOR UPDATE SKIP LOCKED
