-- Fresh rows by primary key above the remembered low id. The index order is the order asked for:
-- a sort would have SKIP LOCKED lock every row of the table. weight_bytes instead of the columns:
-- rows over the limit of bytes are not taken, and their payload is not read either.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND status = 'PENDING' AND next_retry_at IS NULL
ORDER BY id LIMIT ?
FOR UPDATE SKIP LOCKED
