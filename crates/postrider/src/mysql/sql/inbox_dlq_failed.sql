-- It failed again: it waits for an operator as before.
UPDATE postrider_inbox_dlq SET retry_asked_at = NULL, error_message = ?, failed_at = UTC_TIMESTAMP(6)
WHERE id = ?
