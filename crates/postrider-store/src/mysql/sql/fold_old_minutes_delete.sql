-- In the same transaction as fold_old_minutes, so that a reader's snapshot has each line exactly
-- once.
DELETE b FROM JSON_TABLE(?, '$[*]' COLUMNS (
    minute DATETIME PATH '$[0]',
    event_type VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]',
    kind VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]'
)) AS d STRAIGHT_JOIN `{outbox}_ledger` AS b FORCE INDEX (PRIMARY)
    ON b.minute = d.minute AND b.event_type = d.event_type AND b.kind = d.kind
