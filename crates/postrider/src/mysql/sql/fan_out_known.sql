-- Of the ids (JSON), those whose request id the child remembers. It belongs to another event: of another
-- parent, or of a time that the parent has forgotten. The copy must not be refused as its repeat, so it
-- counts as sent again. A statement of its own: one that asks the child's table cannot also fire its
-- trigger.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
STRAIGHT_JOIN `{child}_keys` AS k ON k.request_id = o.request_id
