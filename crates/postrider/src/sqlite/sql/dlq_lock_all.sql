-- With their identities; the write lock is held.
SELECT id, event_id FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1)) AND NOT resolved
ORDER BY id
