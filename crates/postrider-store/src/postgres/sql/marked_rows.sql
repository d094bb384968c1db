SELECT id FROM "{outbox}" WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER'
ORDER BY id LIMIT $1
