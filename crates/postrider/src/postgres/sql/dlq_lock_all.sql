-- An operator may have been faster: then it is resolved by now.
SELECT id, event_id::text FROM "{outbox}_dlq" WHERE id = ANY ($1) AND NOT resolved
ORDER BY id FOR UPDATE
