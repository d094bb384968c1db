-- The consumer that reads its letters handles it again.
UPDATE postrider_inbox_dlq
SET retry_asked_at = COALESCE(retry_asked_at, UTC_TIMESTAMP(6)), resolved_by = ?
WHERE id = ?
