-- Rows marked DEAD_LETTER from id $2 to $3, oldest first; the same transaction moves exactly these.
SELECT id, event_id FROM "{outbox}" INDEXED BY "{outbox}_marked"
WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER' AND id BETWEEN $2 AND $3
ORDER BY id LIMIT $1
