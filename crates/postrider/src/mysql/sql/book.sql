-- What the rows of a batch add to the books: kind, then ids (JSON). The rows are locked, so this
-- consistent read counts exactly what the next statements remove.
INSERT INTO `{outbox}_book_entries` (minute, event_type, kind, count, id_sum)
SELECT CAST(DATE_FORMAT(o.created_at, '%Y-%m-%d %H:%i:00') AS DATETIME), o.event_type, ?,
    COUNT(*), SUM(o.id)
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
GROUP BY 1, 2
