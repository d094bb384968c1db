DELETE FROM "{outbox}_closed" WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM "{outbox}_closed"
    WHERE closed_at < now() - $1 * interval '1 millisecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
))
