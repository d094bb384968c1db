-- The last step of what leaves the outbox: ids (JSON), locked and booked.
DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
