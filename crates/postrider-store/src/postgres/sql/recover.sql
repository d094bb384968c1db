-- One step of a walk over the table: $1 from (excluded), $2 to (included), $3 dead relays, $4 live
-- relays, $5 stall time in ms. SKIP LOCKED: a row that its owner is settling is not stalled.
WITH stalled AS (
    SELECT id FROM "{outbox}"
    WHERE id > $1 AND id <= $2 AND status = 'PROCESSING'
      AND (locked_by = ANY ($3)
           OR ((locked_by IS NULL OR locked_by <> ALL ($4))
               AND (locked_at IS NULL OR locked_at < now() - $5 * interval '1 millisecond'
                    OR locked_at > now() + interval '1 hour')))
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE "{outbox}" AS o
SET status = 'PENDING', next_retry_at = now(), crash_count = least(o.crash_count + 1, 1000000),
    locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991
FROM stalled WHERE o.id = stalled.id
