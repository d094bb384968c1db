-- Locks the rows that a plain read found (ids, JSON), if they can still be claimed.
SELECT o.id, o.weight_bytes FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.queue = 0 AND o.status IN ('PENDING', 'FAILED')
FOR UPDATE SKIP LOCKED
