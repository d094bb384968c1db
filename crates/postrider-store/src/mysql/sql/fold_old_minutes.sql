-- Sums up lines (as JSON, locked by fold_old_minutes_find) by type and kind.
INSERT INTO `{outbox}_ledger` (minute, event_type, kind, count, id_sum)
SELECT * FROM (
    SELECT CAST('1970-01-01' AS DATETIME) AS minute, b.event_type, b.kind, SUM(b.count) AS added,
        SUM(b.id_sum) AS id_sum_added
    FROM JSON_TABLE(?, '$[*]' COLUMNS (
        minute DATETIME PATH '$[0]',
        event_type VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]',
        kind VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]'
    )) AS d STRAIGHT_JOIN `{outbox}_ledger` AS b FORCE INDEX (PRIMARY)
        ON b.minute = d.minute AND b.event_type = d.event_type AND b.kind = d.kind
    GROUP BY b.event_type, b.kind
) AS s ORDER BY event_type, kind
ON DUPLICATE KEY UPDATE
    `{outbox}_ledger`.count = `{outbox}_ledger`.count + s.added,
    `{outbox}_ledger`.id_sum = `{outbox}_ledger`.id_sum + s.id_sum_added
