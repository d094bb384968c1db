-- Ids, as JSON. An operator may have been faster: then it is resolved by now.
SELECT o.id, o.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE NOT o.resolved ORDER BY o.id FOR UPDATE
