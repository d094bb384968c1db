-- Ids (JSON), locked by clean_dlq_find.
DELETE a FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS a FORCE INDEX (PRIMARY) ON a.id = d.id
