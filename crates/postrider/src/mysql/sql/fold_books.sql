-- Sums up entries (ids as JSON, locked by fold_books_find).
INSERT INTO `{outbox}_books` (minute, event_type, kind, count, id_sum)
SELECT * FROM (
    SELECT e.minute, e.event_type, e.kind, SUM(e.count) AS added, SUM(e.id_sum) AS id_sum_added
    FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
    STRAIGHT_JOIN `{outbox}_book_entries` AS e FORCE INDEX (PRIMARY) ON e.id = d.id
    GROUP BY e.minute, e.event_type, e.kind
) AS s ORDER BY minute, event_type, kind
ON DUPLICATE KEY UPDATE
    `{outbox}_books`.count = `{outbox}_books`.count + s.added,
    `{outbox}_books`.id_sum = `{outbox}_books`.id_sum + s.id_sum_added
