-- It failed again: it waits for an operator as before.
UPDATE postrider_inbox_dlq SET retry_asked_at = NULL, error_message = $1, failed_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = $2
