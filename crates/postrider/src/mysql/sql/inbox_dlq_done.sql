-- Handled after all, in the transaction of its effect.
UPDATE postrider_inbox_dlq
SET resolved_at = UTC_TIMESTAMP(6), resolution_note = 'handled again', retry_asked_at = NULL
WHERE id = ?
