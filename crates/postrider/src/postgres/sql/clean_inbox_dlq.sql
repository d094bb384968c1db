-- $1 age in ms, $2 maximum rows, $3 consumer (NULL: all). Resolved dead letters only.
DELETE FROM postrider_inbox_dlq WHERE id = ANY (ARRAY(
    SELECT id FROM postrider_inbox_dlq
    WHERE resolved_at < now() - $1 * interval '1 millisecond'
      AND ($3::text IS NULL OR consumer = $3)
    ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
))
