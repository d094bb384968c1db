SELECT o.id, o.reason, o.error_message
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
