-- Newest first, with ids from one to below another.
SELECT id, at, operator, action, outbox, target, detail FROM postrider_audit
WHERE {filter} AND id >= ? AND id < ?
ORDER BY id DESC LIMIT ?
