-- name: inbox_known
-- Whether the transaction, or one before it, has received it.
SELECT count(*) AS found FROM postrider_inbox WHERE consumer = :consumer AND event_id = :event_id

-- name: inbox_letter_asked
-- The oldest letter of a consumer that an operator wants handled again and no consumer holds.
SELECT id, consumer, event_id, source, message_key, headers, payload, error_message, failed_at,
    retry_asked_at
FROM postrider_inbox_dlq
WHERE consumer = :consumer AND retry_asked_at IS NOT NULL AND resolved_at IS NULL
ORDER BY id LIMIT 1 {lock_free}

-- name: inbox_applied
UPDATE postrider_inbox SET outcome = 'applied' WHERE consumer = :consumer AND event_id = :event_id

-- name: inbox_letter_done
-- Handled after all, in the transaction of its effect.
UPDATE postrider_inbox_dlq
SET resolved_at = {now}, resolution_note = 'handled again', retry_asked_at = NULL
WHERE id = :id

-- name: inbox_letter_failed
-- It failed again: it waits for an operator as before.
UPDATE postrider_inbox_dlq
SET retry_asked_at = NULL, error_message = :error, failed_at = {now}
WHERE id = :id
