-- Rows marked DEAD_LETTER, oldest first; the same transaction moves exactly these.
SELECT id, event_id FROM "{outbox}" INDEXED BY "{outbox}_marked"
WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER' ORDER BY id LIMIT $1
