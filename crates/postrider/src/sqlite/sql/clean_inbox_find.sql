-- $1 age, $2 maximum rows, $3 consumer (NULL: all). The identity of a message with an unresolved
-- dead letter is kept: the broker may send it again.
SELECT i.consumer, i.event_id, i.outcome FROM postrider_inbox AS i
WHERE i.received_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
  AND ($3 IS NULL OR i.consumer = $3)
  AND (i.outcome = 'applied' OR NOT EXISTS (
      SELECT 1 FROM postrider_inbox_dlq AS d
      WHERE d.consumer = i.consumer AND d.event_id = i.event_id AND d.resolved_at IS NULL))
ORDER BY i.received_at LIMIT $2
