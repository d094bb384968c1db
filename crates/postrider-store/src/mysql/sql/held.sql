-- Locks the rows of a batch that are unchanged since they were claimed or read: ids and versions
-- (JSON, ids ascending), relay. In mode `rows` the relay holds them, in `lanes` no relay does. The
-- caller compares the event ids: in the JSON every statement of a settle would parse them.
SELECT o.id, o.event_type, o.created_at, o.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', version BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND (o.locked_by = ? OR o.locked_by IS NULL)
FOR UPDATE
