-- Locks the rows of a batch that are as they were claimed or read: ids and versions (JSON, ids
-- ascending), relay. In mode `rows` they are the relay's own, in `lanes` nobody's. The caller compares
-- the identities: in the JSON they would be parsed by every statement of a settle.
SELECT o.id, o.event_type, o.created_at, o.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND (o.locked_by = ? OR o.locked_by IS NULL)
FOR UPDATE
