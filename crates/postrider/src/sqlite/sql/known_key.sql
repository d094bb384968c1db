-- The event of a request id, while that is remembered. Outside of any transaction: what is committed.
SELECT id FROM "{outbox}_keys" WHERE request_id = $1
