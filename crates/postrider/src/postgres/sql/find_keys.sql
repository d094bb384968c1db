-- The first events of request ids that were skipped as repeats.
SELECT request_id, id FROM "{outbox}_keys" WHERE request_id = ANY($1)
