SELECT id, event_type, created_at, event_id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = -1 AND status = 'DEAD_LETTER' AND id BETWEEN ? AND ? LIMIT ? FOR UPDATE SKIP LOCKED
