UPDATE postrider_inbox_dlq
SET resolved_at = now(), resolved_by = $1, resolution_note = $2, retry_asked_at = NULL
WHERE id = $3
