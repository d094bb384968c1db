-- Locks the rows of a batch that are still the relay's own: ids and versions (JSON, ids ascending),
-- relay. What this answers is settled; the rest was settled before or is somebody else's.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND o.locked_by = ? AND o.status = 'PROCESSING'
FOR UPDATE
