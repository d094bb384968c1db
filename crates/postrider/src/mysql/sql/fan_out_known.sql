-- Of the ids (JSON), those whose request id the child remembers: copied before, and now again by a
-- replay. The child's trigger would fail; a statement that asks its table cannot also fire it.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
STRAIGHT_JOIN `{child}_keys` AS k ON k.request_id = o.request_id
WHERE o.redrive_count = 0
