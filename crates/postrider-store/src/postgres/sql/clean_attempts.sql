DELETE FROM "{outbox}_attempts" WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM "{outbox}_attempts"
    WHERE failed_at < now() - $1 * interval '1 millisecond' LIMIT $2
))
