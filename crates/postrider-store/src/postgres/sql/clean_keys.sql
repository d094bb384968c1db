-- Request ids past their window whose event has left the outbox: $1 window in ms.
DELETE FROM "{outbox}_keys" WHERE request_id IN (
    SELECT k.request_id FROM "{outbox}_keys" AS k
    WHERE k.created_at < now() - $1 * interval '1 millisecond'
      AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.id = k.id)
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
