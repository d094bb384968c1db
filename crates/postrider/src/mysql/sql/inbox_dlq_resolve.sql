UPDATE postrider_inbox_dlq
SET resolved_at = UTC_TIMESTAMP(6), resolved_by = ?, resolution_note = ?, retry_asked_at = NULL
WHERE id = ?
