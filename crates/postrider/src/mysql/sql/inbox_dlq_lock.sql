-- Whether it is resolved, by whom, and whose it is.
SELECT resolved_at IS NOT NULL, resolved_by, consumer FROM postrider_inbox_dlq
WHERE id = ? FOR UPDATE
