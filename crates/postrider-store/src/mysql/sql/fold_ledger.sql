-- Sums up entries (ids as JSON, locked by fold_ledger_find).
INSERT INTO `{outbox}_ledger` (minute, event_type, kind, count, id_sum)
SELECT * FROM (
    SELECT e.minute, e.event_type, e.kind, SUM(e.count) AS added, SUM(e.id_sum) AS id_sum_added
    FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
    STRAIGHT_JOIN `{outbox}_ledger_entries` AS e FORCE INDEX (PRIMARY) ON e.id = d.id
    GROUP BY e.minute, e.event_type, e.kind
) AS s ORDER BY minute, event_type, kind
ON DUPLICATE KEY UPDATE
    `{outbox}_ledger`.count = `{outbox}_ledger`.count + s.added,
    `{outbox}_ledger`.id_sum = `{outbox}_ledger`.id_sum + s.id_sum_added
