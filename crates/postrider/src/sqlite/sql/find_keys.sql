-- The first events of request ids that were skipped as repeats: $1 a JSON array.
SELECT request_id, id FROM "{outbox}_keys" WHERE request_id IN (SELECT value FROM json_each($1))
