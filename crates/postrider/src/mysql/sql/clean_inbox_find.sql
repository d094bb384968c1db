-- Age in ms; consumer, twice (NULL: all); maximum rows. The identity of a message with an
-- unresolved dead letter is kept: the broker may send it again.
SELECT i.consumer, i.event_id, i.outcome FROM postrider_inbox AS i FORCE INDEX (postrider_inbox_age)
WHERE i.received_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
  AND (? IS NULL OR i.consumer = ?)
  AND (i.outcome = 'applied' OR NOT EXISTS (
      SELECT 1 FROM postrider_inbox_dlq AS d
      WHERE d.consumer = i.consumer AND d.event_id = i.event_id AND d.resolved_at IS NULL))
ORDER BY i.received_at LIMIT ?
FOR UPDATE SKIP LOCKED
