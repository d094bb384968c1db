-- In the same transaction as fold_ledger, so that a reader's snapshot has each entry exactly once.
DELETE e FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_ledger_entries` AS e FORCE INDEX (PRIMARY) ON e.id = d.id
