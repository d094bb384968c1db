-- The consumer that reads its letters handles it again.
UPDATE postrider_inbox_dlq
SET retry_asked_at = COALESCE(retry_asked_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), resolved_by = $1
WHERE id = $2
