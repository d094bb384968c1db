-- $1 age, $2 maximum rows, $3 consumer (NULL: all). Resolved dead letters only.
DELETE FROM postrider_inbox_dlq WHERE id IN (
    SELECT id FROM postrider_inbox_dlq
    WHERE resolved_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
      AND ($3 IS NULL OR consumer = $3) ORDER BY id LIMIT $2
)
