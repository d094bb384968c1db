-- Adds a batch to the ledger: kind, then minutes, types, counts and sums of ids (JSON) of the rows
-- that the same transaction has locked and removes.
INSERT INTO `{outbox}_ledger_entries` (minute, event_type, kind, count, id_sum)
SELECT d.minute, d.event_type, ?, d.count, d.id_sum
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    minute DATETIME PATH '$[0]',
    event_type VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]',
    count BIGINT PATH '$[2]',
    id_sum DECIMAL(38, 0) PATH '$[3]'
)) AS d
