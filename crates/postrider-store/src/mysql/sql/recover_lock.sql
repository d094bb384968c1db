-- Locks the rows of recover_find (ids and versions, JSON) that are unchanged. SKIP LOCKED: a row
-- that its owner is settling is not stalled.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND o.status = 'PROCESSING'
FOR UPDATE SKIP LOCKED
