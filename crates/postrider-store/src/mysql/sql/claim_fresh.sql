-- Fresh rows above the remembered low id. In this index they are adjacent, in the order of the
-- query: by primary key, a million waiting rows before them cost 1.3 s, and with a sort SKIP LOCKED
-- would lock all of them. Reads weight_bytes instead of the columns: the payload of a row over the
-- byte limit is not read.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
WHERE queue = 0 AND next_retry_at IS NULL AND id > ? AND status = 'PENDING'
ORDER BY id LIMIT ?
FOR UPDATE SKIP LOCKED
