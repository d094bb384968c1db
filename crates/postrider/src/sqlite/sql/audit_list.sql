-- Newest first, with ids from $7 to below $8.
SELECT id, at, operator, action, outbox, target, detail FROM postrider_audit
WHERE {filter} AND id >= $7 AND id < $8
ORDER BY id DESC LIMIT $9
