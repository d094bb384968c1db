-- Of the ids (JSON), those whose request id the child remembers. It belongs to another event: one
-- of another parent, or one so old that the parent has forgotten it. The copy must not be refused
-- as a repeat, so it counts as retried. A separate statement, because one that reads the child's
-- tables cannot also fire its trigger.
SELECT o.id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
STRAIGHT_JOIN `{child}_keys` AS k ON k.request_id = o.request_id
