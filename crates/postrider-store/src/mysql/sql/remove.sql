-- The last step for rows that leave the outbox: ids (JSON), locked and counted in the ledger.
DELETE o FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
