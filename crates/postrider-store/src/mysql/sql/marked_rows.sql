SELECT id FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = -1 AND status = 'DEAD_LETTER' LIMIT ?
