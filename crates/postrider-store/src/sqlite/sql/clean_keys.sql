-- Request ids past their window whose event has left the outbox: $1 window.
DELETE FROM "{outbox}_keys" WHERE request_id IN (
    SELECT k.request_id FROM "{outbox}_keys" AS k
    WHERE k.created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
      AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.id = k.id)
    LIMIT $2
)
